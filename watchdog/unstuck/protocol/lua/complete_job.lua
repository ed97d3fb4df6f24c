#!lua flags=allow-oom
-- Complete an attempt: accepted only with the current token, whatever became of the lock key.
-- KEYS 1 unstuck:{Q}:meta
-- ARGV 1 worker  2 slot  3 op  4 id  5 token  6 result_ttl_ms  7 expected version or '' (optimistic mode)
-- returns 'completed' | 'refused' | 'conflict' (optimistic mode: another version, or somebody else has finished it; under
--         a token that is still current the job stays active and the worker releases it)
--@include common
--@include buckets
--@include raising
--@include ending
--@include finishing
local worker, slot, op, id, token = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5]
local result_ttl = integer(ARGV[6])
if not result_ttl or result_ttl < 1 then return redis.error_reply('UNSTUCKVALUE result_ttl_ms') end
local answer, body, stamp, _, at = begin_finish(worker, slot, op, id, token, 'completed', ARGV[7])
if answer then return answer end
if ARGV[7] ~= '' and ARGV[7] ~= whole(body.version) then
  redis.pcall('HINCRBY', stem .. 'stats', 'conflicts', '1')
  return remember(worker, slot, op, 'conflict')
end

local err = raise({'completed', 'run_ms', bucket('run_le_', body.ran)}, {1, body.ran, 1})
if err then return err end
end_attempt(id, body.worker, body.deadline)
finish_body(id, body, at, ARGV[6])
leave_active(id)
invalidate(id, 'completed', stamp)
count_unheard()
note('completed', id, worker, token, '')
return remember(worker, slot, op, 'completed')
