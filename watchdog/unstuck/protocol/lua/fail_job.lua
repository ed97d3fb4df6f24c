#!lua flags=allow-oom
-- Fail an attempt: scheduled again with backoff, or dead after max_attempts, when permanent, or when it was cancelled.
-- KEYS 1 unstuck:{Q}:meta
-- ARGV 1 worker  2 slot  3 op  4 id  5 token  6 error (at most 4 kB)  7 cause  8 permanent (1|0)
--      9 max_attempts  10 retry_delay_ms  11 jitter in thousandths (800..1200)  12 dead_max  13 dead_ttl_ms
-- returns 'scheduled' | 'dead' | 'refused'
--@include common
--@include buckets
--@include raising
--@include ending
--@include placing
--@include finishing
local worker, slot, op, id, token = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5]
for i = 9, 13 do
  if not integer(ARGV[i]) then return redis.error_reply('UNSTUCKVALUE ' .. i .. ' ' .. ARGV[i]) end
end
local answer, body, stamp, now = begin_finish(worker, slot, op, id, token, 'failed')
if answer then return answer end
local job = stem .. 'job:' .. id
local counted = call('HMGET', job, 'failures', 'max_attempts', 'retry_delay_ms', 'cancelled_at')
local failures, max_attempts, retry_delay = integer(counted[1]), integer(counted[2]), integer(counted[3])
local cancelled = counted[4]
if not (failures and max_attempts and retry_delay) then
  return redis.error_reply('UNSTUCKNUMBER ' .. job .. ' failures, max_attempts or retry_delay_ms')
end
check_places()
local counters, err = read_finish_counters('failed', body.ran)
if err then return err end

failures = failures + 1
local most = max_attempts > 0 and max_attempts or tonumber(ARGV[9])
local error_text = string.sub(ARGV[6], 1, 4096)
end_attempt(id, body.worker, body.deadline)
call('HSET', job, 'failures', whole(failures), 'error', error_text, 'version', whole(body.version + 1),
  'last_worker', worker, 'last_token', token)
call('HDEL', job, unpack(ATTEMPT_FIELDS))
local result
if ARGV[8] == '1' or cancelled or failures >= most then
  local cause = ARGV[7]
  if cancelled then cause = 'cancelled' elseif ARGV[8] ~= '1' then cause = 'max_attempts' end
  local dropped = to_dead(id, job, now, cause, tonumber(ARGV[12]), tonumber(ARGV[13]))
  invalidate(id, 'dead', stamp)
  count_finish(counters, body.ran, 1, dropped, 0)
  note('dead_lettered', id, worker, token, cause)
  result = 'dead'
else
  local base = retry_delay > 0 and retry_delay or tonumber(ARGV[10])
  local delay = math.min(600000, base * 2 ^ math.min(failures - 1, 30)) * tonumber(ARGV[11]) / 1000
  to_scheduled(id, job, now + math.floor(math.min(600000, delay)))
  invalidate(id, 'failed', stamp)
  count_finish(counters, body.ran, 0, 0, 1)
  note('failed', id, worker, token, ARGV[7])
  result = 'scheduled'
end
leave_active(id)
return remember(worker, slot, op, result)
