-- Where a job can be put. Each function is called after every check has passed, and before the job leaves the place where it is.

-- Read what placing will write to, so that a wrong type raises before the first write.
local function check_places()
  call('LLEN', stem .. 'pending')
  call('ZCARD', stem .. 'scheduled')
  call('ZCARD', stem .. 'dead')
  call('LLEN', stem .. 'wake')
  call('LLEN', stem .. 'quarantine')
  call('XLEN', stem .. 'events')
end

local ATTEMPT_FIELDS = {'token', 'worker', 'lock', 'lock_ttl_ms', 'heartbeat_ms', 'abort_after_ms', 'started_at',
  'heartbeat_at', 'expected_by', 'progress', 'cancelled_at'}

local function to_pending(id, job, now, side)
  call(side, stem .. 'pending', id)
  call('HSET', job, 'state', 'pending', 'ready_at', now)
  if call('LPUSH', stem .. 'wake', '1') > 1000 then call('LTRIM', stem .. 'wake', '0', '999') end
end

local function to_scheduled(id, job, due)
  call('ZADD', stem .. 'scheduled', due, id)
  call('HSET', job, 'state', 'scheduled')
end

-- Bury with its cause; the oldest beyond `most`, or older than `keep_ms`, are dropped (at most 10 a call). Returns how many.
local function to_dead(id, job, now, cause, most, keep_ms)
  call('ZADD', stem .. 'dead', now, id)
  call('HSET', job, 'state', 'dead', 'cause', cause, 'died_at', now)
  local dropped = 0
  local old = call('ZRANGEBYSCORE', stem .. 'dead', '-inf', now - keep_ms, 'LIMIT', 0, 10)
  local excess = math.min(call('ZCARD', stem .. 'dead') - #old - most, 10 - #old)
  if excess > 0 then
    local more = call('ZRANGE', stem .. 'dead', #old, #old + excess - 1)
    for i = 1, #more do old[#old + 1] = more[i] end
  end
  for i = 1, #old do
    call('ZREM', stem .. 'dead', old[i])
    local state = redis.pcall('HGET', stem .. 'job:' .. old[i], 'state')
    if type(state) ~= 'string' or state == 'dead' then call('UNLINK', stem .. 'job:' .. old[i]) end -- not what lives elsewhere
    dropped = dropped + 1
  end
  return dropped
end

-- An id that no worker could run: out of the way, body (if any) kept for a person.
local function to_quarantine(id, job, cause)
  call('LPUSH', stem .. 'quarantine', id)
  local kind = call('TYPE', job)
  if (kind.ok or kind) == 'hash' then call('HSET', job, 'state', 'quarantine', 'cause', cause) end
  note('quarantined', id, '', '', cause)
end
