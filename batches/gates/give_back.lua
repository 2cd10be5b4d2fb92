-- Permits of a take that were not used: the schedule goes back to where the last one used left it,
-- if nobody took a later one (then they are forfeit, which is only slower); their places are free.
--
-- KEYS  1 last  2 calls (see take.lua)
-- ARGV  1 what the take made of `last` ('' = nothing)  2 what it is to be ('' = nothing)
--       3… tokens
if ARGV[1] ~= '' and redis.call('GET', KEYS[1]) == ARGV[1] then
  if ARGV[2] == '' then
    redis.call('DEL', KEYS[1])
  else
    redis.call('SET', KEYS[1], ARGV[2], 'KEEPTTL')
  end
end
for i = 3, #ARGV do
  redis.call('ZREM', KEYS[2], ARGV[i])
end
return 0
