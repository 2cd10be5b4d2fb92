-- Up to n permits in one round trip: a rate (GCRA) and a number of calls at once (leased tokens).
-- A permit's slot is the moment it was due; slots are `step` apart, and a permit is granted at most
-- `tolerance` after its slot. docs/pacing.md proves what follows from that.
--
-- KEYS  1 since  moment (µs) from which on this server's memory of permits is complete
--       2 last   slot (µs) of the latest permit
--       3 calls  sorted set: token of a call -> moment (µs) at which its place is free again
-- ARGV  1 n  2 span (µs): a step is span / rate  3 rate (0 = no limit)  4 tolerance (µs)
--       5 most calls at once (0 = no limit)  6 token prefix  7 token ttl (ms)
--       8 '1': this server has forgotten its scripts  9 now (µs), by tests only
-- Gives granted, wait (ms), slot, step.

-- A missing `last` means "none since `since`": by expiry, an hour is longer than any step.
local KEPT_MS = 3600000
-- Nobody says when a call of another lane ends.
local LOOK_AGAIN_US = 50000

local function whole(number) -- a plain tostring keeps 14 digits only
  return string.format('%.0f', number)
end

local n, span, rate, tolerance = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4])
local most, ttl_ms = tonumber(ARGV[5]), math.min(tonumber(ARGV[7]), KEPT_MS)
local now = tonumber(ARGV[9])
if not now then
  local time = redis.call('TIME')
  now = tonumber(time[1]) * 1000000 + tonumber(time[2])
end

-- 1. What is remembered. Flushed, restarted (perhaps from an old copy), failed over, or its clock
--    set back: begin as if a permit had been given this moment.
local since = tonumber(redis.call('GET', KEYS[1]) or '')
local last = tonumber(redis.call('GET', KEYS[2]) or '')
if ARGV[8] == '1' or not since or since > now or (last and last > now) then
  since, last = now, nil
  redis.call('SET', KEYS[1], whole(since))
  redis.call('DEL', KEYS[2])
end

-- 2. The rate.
local granted, wait, step, slot = n, 0, 0, 0
if rate > 0 then
  step = math.ceil(span / rate)
  slot = math.max(since + tolerance + step, now - tolerance)
  if last then
    slot = math.max(slot, last + step)
  end
  if slot > now then
    granted = 0
  else
    granted = math.min(n, math.floor((now - slot) / step) + 1)
  end
end

-- 3. Calls at once. A killed lane's tokens run out by themselves.
if most > 0 then
  redis.call('ZREMRANGEBYSCORE', KEYS[3], '-inf', whole(now))
  local free = math.max(0, most - redis.call('ZCARD', KEYS[3]))
  granted = math.min(granted, free)
  for i = 1, granted do
    redis.call('ZADD', KEYS[3], whole(now + ttl_ms * 1000), ARGV[6] .. ':' .. i)
  end
  if granted > 0 then
    redis.call('PEXPIRE', KEYS[3], KEPT_MS)
  end
  if free == granted then
    local first = redis.call('ZRANGE', KEYS[3], 0, 0, 'WITHSCORES')
    wait = LOOK_AGAIN_US
    if first[2] then
      wait = math.min(wait, math.max(0, tonumber(first[2]) - now))
    end
  end
end

-- 4. Remember the last slot given, and tell when the next is due.
if rate > 0 then
  if granted > 0 then
    redis.call('SET', KEYS[2], whole(slot + (granted - 1) * step), 'PX', KEPT_MS)
  end
  wait = math.max(wait, slot + granted * step - now)
end
return {granted, math.ceil(wait / 1000), whole(slot + (granted - 1) * step), whole(step)}
