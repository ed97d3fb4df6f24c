#!lua flags=allow-oom
-- Complete an attempt: accepted only with the current token, whatever became of the lock key.
-- KEYS 1 unstuck:{Q}:meta
-- ARGV 1 worker  2 slot  3 op  4 id  5 token  6 result_ttl_ms  7 expected version or '' (optimistic mode)
-- returns 'completed' | 'refused' | 'conflict' (optimistic mode: another version, or somebody else has finished it; under
--         a token that is still current the job stays active and the worker releases it)
--@include common
--@include buckets
--@include ending
--@include finishing
local worker, slot, op, id, token = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5]
local result_ttl = integer(ARGV[6])
if not result_ttl or result_ttl < 1 then return redis.error_reply('UNSTUCKVALUE result_ttl_ms') end
local answer, body, counters, stamp, _, at = begin_finish(worker, slot, op, id, token, 'completed', ARGV[7])
if answer then return answer end
if ARGV[7] ~= '' and ARGV[7] ~= whole(body.version) then
  redis.pcall('HINCRBY', stem .. 'stats', 'conflicts', 1)
  return remember(worker, slot, op, 'conflict')
end

local job = stem .. 'job:' .. id
end_attempt(id, body.worker, body.deadline)
redis.call('HSET', job, 'state', 'done', 'finished_at', at, 'version', whole(body.version + 1))
redis.call('HDEL', job, 'payload', 'progress', 'lock', 'heartbeat_at')
if body.cancelled or body.deadline then redis.call('HDEL', job, 'cancelled_at', 'expected_by') end
redis.call('PEXPIRE', job, ARGV[6])
invalidate(id, 'completed', stamp)
count_finish(counters, body.ran, 0, 0, 0)
note('completed', id, worker, token, '')
return remember(worker, slot, op, 'completed')
