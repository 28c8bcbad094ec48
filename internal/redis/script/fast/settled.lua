local settled = not ARGV[3] or ARGV[3] == '0' -- no attempt of this claim is under way
