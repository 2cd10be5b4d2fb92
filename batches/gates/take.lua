-- Permits for up to n calls in one round trip: a rate of targets (GCRA) and a number of calls at
-- once (leased places). docs/pacing.md proves what follows from the arithmetic below.
--
-- A permit has a slot on the gate's schedule and is given at most `tolerance` after it. After a
-- call of k targets the schedule goes on k steps later. A step is span / (rate + 1 - largest),
-- where `largest` is the largest call asked for of late.
--
-- KEYS  1 since  moment (µs) from which on this server's memory of permits is complete
--       2 last   'slot size largest' of the latest permit
--       3 calls  sorted set: token of a call -> moment (µs) at which its place is free again
--       4 asked  'largest moment': the largest call asked for, and when
-- ARGV  1 n  2 targets of each call, 'a,b,…' ('' = 1 each)  3 span (µs)  4 rate (0 = no limit)
--       5 tolerance (µs)  6 most calls at once (0 = no limit)  7 token prefix  8 token ttl (ms)
--       9 most targets that any call of this gate may have
--       10 '1': this server has forgotten its scripts  11 now (µs), by tests only
-- Gives granted, wait (ms), former `last`, first slot, step, largest.

-- A missing `last` means "none since `since`": an hour is longer than any gap.
local KEPT_MS = 3600000
-- Nobody says when a call of another lane ends.
local LOOK_AGAIN_US = 50000
-- What was asked for counts this long; whoever still wants it asks more often.
local ASKED_US = 120000000
-- A call that no rate allows cannot go until somebody changes the limit.
local NEVER_US = 60000000

local function whole(number) -- a plain tostring keeps 14 digits only
  return string.format('%.0f', number)
end

local n, span, rate, tolerance = tonumber(ARGV[1]), tonumber(ARGV[3]), tonumber(ARGV[4]), tonumber(ARGV[5])
local most, ttl_ms = tonumber(ARGV[6]), math.min(tonumber(ARGV[8]), KEPT_MS)
local now = tonumber(ARGV[11])
if not now then
  local time = redis.call('TIME')
  now = tonumber(time[1]) * 1000000 + tonumber(time[2])
end
local sizes, largest = {}, 1
for size in string.gmatch(ARGV[2], '%d+') do
  sizes[#sizes + 1] = tonumber(size)
  largest = math.max(largest, tonumber(size))
end

-- 1. What is remembered. Flushed, restarted (perhaps from an old copy), failed over, or its clock
--    set back: begin as if the largest call had been permitted this moment.
local since = tonumber(redis.call('GET', KEYS[1]) or '')
local before = redis.call('GET', KEYS[2]) or ''
local last_slot, last_size, last_largest = string.match(before, '^(%d+) (%d+) (%d+)$')
last_slot = tonumber(last_slot)
if ARGV[10] == '1' or not since or since > now or (last_slot and last_slot > now) then
  since, before, last_slot = now, '', nil
  redis.call('SET', KEYS[1], whole(since))
  redis.call('DEL', KEYS[2])
end

-- 2. Places for calls at once. A killed lane's run out by themselves.
local granted, wait, places = 0, 0, n
if most > 0 then
  redis.call('ZREMRANGEBYSCORE', KEYS[3], '-inf', whole(now))
  places = math.max(0, most - redis.call('ZCARD', KEYS[3]))
end

-- 3. The rate.
local first, step = 0, 0
if rate > 0 then
  local asked, at = string.match(redis.call('GET', KEYS[4]) or '', '^(%d+) (%d+)$')
  if asked and tonumber(at) + ASKED_US > now and tonumber(asked) > largest then
    largest = tonumber(asked)
  elseif largest > 1 then
    redis.call('SET', KEYS[4], whole(largest) .. ' ' .. whole(now), 'PX', KEPT_MS)
  end
  largest = math.min(largest, rate)
  step = math.ceil(span / (rate + 1 - largest))
  -- Two calls a span apart are in no common window, whatever their sizes.
  local function gap(targets)
    return math.min(targets * step, span + tolerance)
  end
  local slot = math.max(since + tolerance + gap(tonumber(ARGV[9]) + largest - 1), now - tolerance)
  if last_slot then
    local targets = tonumber(last_size)
    if largest > tonumber(last_largest) then
      targets = targets + largest - 1
    end
    slot = math.max(slot, last_slot + gap(targets))
  end
  first = slot
  while granted < math.min(n, places) and slot <= now do
    local size = sizes[granted + 1] or 1
    if size > rate then
      wait = NEVER_US
      break
    end
    granted = granted + 1
    last_slot, last_size = slot, size
    slot = slot + gap(size)
  end
  if granted > 0 then
    local value = whole(last_slot) .. ' ' .. whole(last_size) .. ' ' .. whole(largest)
    redis.call('SET', KEYS[2], value, 'PX', KEPT_MS)
  end
  wait = math.max(wait, slot - now)
else
  granted = math.min(n, places)
end

-- 4. Take the places, and tell when to look again if none is left.
if most > 0 then
  for i = 1, granted do
    redis.call('ZADD', KEYS[3], whole(now + ttl_ms * 1000), ARGV[7] .. ':' .. i)
  end
  if granted > 0 then
    redis.call('PEXPIRE', KEYS[3], KEPT_MS)
  end
  if places == granted then
    local oldest = redis.call('ZRANGE', KEYS[3], 0, 0, 'WITHSCORES')[2]
    local free_in = oldest and math.max(0, tonumber(oldest) - now) or LOOK_AGAIN_US
    wait = math.max(wait, math.min(LOOK_AGAIN_US, free_in))
  end
end
return {granted, math.ceil(wait / 1000), before, whole(first), whole(step), largest}
