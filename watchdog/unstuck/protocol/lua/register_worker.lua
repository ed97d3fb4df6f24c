#!lua flags=allow-oom
-- Enter or renew a worker's record; control=1 says that its control subscription is confirmed. Harmless to run twice.
-- KEYS 1 unstuck:{Q}:meta
-- ARGV 1 worker  2 record_ttl_ms  3 control (1|0)  then field, value, … of the record (concurrency, version, …)
-- returns {now_ms, stuck_after_ms published by the agent or 0}
--@include common
local worker, ttl = ARGV[1], integer(ARGV[2])
local refused = version_error()
if refused then return refused end
if not valid(worker) then return refuse_name('worker', worker) end
if not ttl or ttl < 1 then return redis.error_reply('UNSTUCKVALUE record_ttl_ms') end
local now = clock()
local record = stem .. 'worker:' .. worker
redis.call('ZSCORE', stem .. 'workers', worker)
local since = redis.call('HGET', record, 'since')
local published = integer(redis.call('HGET', KEYS[1], 'stuck_after_ms')) or 0
redis.call('HSET', KEYS[1], 'v', 1)
redis.call('ZADD', stem .. 'workers', now, worker)
local fields = {'since', since or now, 'control', ARGV[3] == '1' and 1 or 0}
for i = 4, #ARGV - 1, 2 do
  fields[#fields + 1] = ARGV[i]
  fields[#fields + 1] = ARGV[i + 1]
end
redis.call('HSET', record, unpack(fields))
redis.call('PEXPIRE', record, ttl)
return {now, published}
