#!lua flags=allow-oom
-- Give an attempt back: the job is next in line; neither a failure nor a rescue. A cancelled one is buried instead.
-- KEYS 1 unstuck:{Q}:meta
-- ARGV 1 worker  2 slot  3 op  4 id  5 token  6 cause (shutdown, abort, …)  7 dead_max  8 dead_ttl_ms
-- returns 'released' | 'dead' | 'refused'
--@include common
--@include buckets
--@include raising
--@include ending
--@include placing
--@include finishing
local worker, slot, op, id, token, cause = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5], ARGV[6]
if not integer(ARGV[7]) or not integer(ARGV[8]) then return redis.error_reply('UNSTUCKVALUE dead_max or dead_ttl_ms') end
local answer, body, stamp, now, at = begin_finish(worker, slot, op, id, token, 'released')
if answer then return answer end
check_places()
local counters, err = read_finish_counters('released', body.ran)
if err then return err end

local job = stem .. 'job:' .. id
local cancelled = call('HGET', job, 'cancelled_at')
end_attempt(id, body.worker, body.deadline)
call('HSET', job, 'version', whole(body.version + 1), 'last_worker', worker, 'last_token', token)
call('HDEL', job, unpack(ATTEMPT_FIELDS))
local result = 'released'
invalidate(id, 'released', stamp)
if cancelled then
  local dropped = to_dead(id, job, now, 'cancelled', tonumber(ARGV[7]), tonumber(ARGV[8]))
  count_finish(counters, body.ran, 1, dropped, 0)
  result = 'dead'
else
  to_pending(id, job, at, 'RPUSH')
  count_finish(counters, body.ran, 0, 0, 0)
end
leave_active(id)
note(result == 'dead' and 'dead_lettered' or 'released', id, worker, token, cause)
return remember(worker, slot, op, result)
