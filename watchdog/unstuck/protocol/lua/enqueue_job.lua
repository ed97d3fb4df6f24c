#!lua
-- Enqueue one job. Idempotent by its id and operation id. Refused while Redis is out of memory.
-- KEYS 1 unstuck:{Q}:meta
-- ARGV 1 id  2 op  3 payload (JSON text)  4 delay_ms  5 max_attempts or ''  6 retry_delay_ms or ''  7 expected_ms or ''
-- returns {'enqueued' | 'exists', state, now_ms}
--@include common
--@include placing
local id, op, payload, delay = ARGV[1], ARGV[2], ARGV[3], integer(ARGV[4])
local refused = version_error()
if refused then return refused end
if not valid(id) then return refuse_name('job id', id) end
if #payload > 1048576 then return redis.error_reply('UNSTUCKVALUE payload ' .. #payload) end
for i = 5, 7 do
  if ARGV[i] ~= '' and not integer(ARGV[i]) then return redis.error_reply('UNSTUCKVALUE ' .. i .. ' ' .. ARGV[i]) end
end
if not delay then return redis.error_reply('UNSTUCKVALUE delay_ms ' .. ARGV[4]) end
local now, _, at = clock()
local job = stem .. 'job:' .. id
local there = call('HMGET', job, 'enqueue_op', 'state')
if there[2] then
  return {there[1] == op and 'enqueued' or 'exists', there[2], now}
end
call('LLEN', stem .. 'pending')
call('ZCARD', stem .. 'scheduled')
call('LLEN', stem .. 'wake')
local counted, err = read_counters({'enqueued'})
if err then return err end

-- What a claim reads comes first: small hashes are searched from their beginning.
local fields = {'state', delay > 0 and 'scheduled' or 'pending', 'attempt', '0', 'rescues', '0', 'failures', '0',
  'version', '1'}
local function put(name, value)
  if value ~= '' then
    fields[#fields + 1] = name
    fields[#fields + 1] = value
  end
end
put('ready_at', delay > 0 and '' or at)
put('payload', payload)
put('expected_ms', ARGV[7])
put('enqueued_at', at)
put('enqueue_op', op)
put('max_attempts', ARGV[5])
put('retry_delay_ms', ARGV[6])
call('HSET', KEYS[1], 'v', '1') -- first: who may not write hashes leaves no id without a body
if delay > 0 then to_scheduled(id, job, now + delay) else to_pending(id, job, at, 'LPUSH') end
call('HSET', job, unpack(fields))
call('HSET', stem .. 'stats', 'enqueued', whole(counted[1] + 1))
return {'enqueued', delay > 0 and 'scheduled' or 'pending', now}
