if closed then return {QUARANTINE, closed[1], closed[2]} end
