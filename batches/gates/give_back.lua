-- Permits that were not used: their slots become free again, if nobody took a later one (then they
-- are forfeit, which is only slower), and so do their places among the calls at once.
--
-- KEYS  1 last  2 calls (see take.lua)
-- ARGV  1 slot and 2 step that the take gave  3 number of permits  4… their tokens
local last = redis.call('GET', KEYS[1])
if last and last == ARGV[1] then
  local freed = tonumber(last) - tonumber(ARGV[3]) * tonumber(ARGV[2])
  redis.call('SET', KEYS[1], string.format('%.0f', freed), 'KEEPTTL')
end
for i = 4, #ARGV do
  redis.call('ZREM', KEYS[2], ARGV[i])
end
return 0
