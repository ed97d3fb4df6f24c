#!lua
-- Publish the polling interval of a queue, unless a younger leader has been here. `seq` grows with every publication.
-- KEYS 1 unstuck:{Q}:meta
-- ARGV 1 epoch  2 ttl_ms  3 stuck_after_ms or '' (foreign queues)  then field, value, …
-- returns {seq, now_ms}
--@include common
--@include fencing
local refused = version_error()
if refused then return refused end
local fenced = fence_error(ARGV[1])
if fenced then return fenced end
local ttl = integer(ARGV[2])
if not ttl or ttl < 1 then return redis.error_reply('UNSTUCKVALUE ttl_ms ' .. ARGV[2]) end
local now = clock()
local pacing = stem .. 'pacing'
local seq = integer(redis.call('HGET', pacing, 'seq')) or 0
local fields = {'seq', whole(seq + 1), 'epoch', ARGV[1], 'computed_at_ms', now, 'ttl_ms', ttl}
for i = 4, #ARGV - 1, 2 do
  fields[#fields + 1] = ARGV[i]
  fields[#fields + 1] = ARGV[i + 1]
end
redis.call('HSET', pacing, unpack(fields))
redis.call('PEXPIRE', pacing, ttl)
if ARGV[3] ~= '' then redis.call('HSET', KEYS[1], 'v', 1, 'stuck_after_ms', ARGV[3]) end
raise_fence(ARGV[1])
return {seq + 1, now}
