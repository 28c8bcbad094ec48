-- Commands and their errors. Commands go through redis.pcall: its errors begin with the server's
-- own word (OOM, READONLY), those of redis.call with a line number on Redis 6.
local function refused(reply) return type(reply) == 'table' and reply.err end

-- stop ends way in answer(way) with reply. Nothing has been written then. (The reply is in a table,
-- as pcall of Redis 7 makes a text of an error with a field err.)
local function stop(reply) error({reply = reply}, 0) end

local function answer(way)
  local done, reply = pcall(way)
  if not done and type(reply) ~= 'table' then error(reply, 0) end
  return done and reply or reply.reply
end

-- run executes a command; if the server refuses it, its error is the script's reply.
local function run(...)
  local reply = redis.pcall(...)
  if refused(reply) then stop(reply) end
  return reply
end

-- primary stops at a replica, which may lag behind and must not say no: there HDEL is refused. It
-- deletes nothing, and is taken when out of memory, and so is all that follows it in the same
-- script.
local function primary()
  local reply = redis.pcall('HDEL', KEYS[1], '-')
  if refused(reply) and not string.find(reply.err, 'WRONGTYPE', 1, true) then stop(reply) end
end
