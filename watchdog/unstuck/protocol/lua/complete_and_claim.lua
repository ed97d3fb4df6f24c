#!lua flags=allow-oom
-- The straight case of complete_job and claim_job in one: both look and check, then both write. Whatever is not straight (a
-- refusal, a conflict, a due or bad job, a bad argument, one part repeated) changes nothing and answers 'apart': run both then.
-- KEYS 1 unstuck:{Q}:meta
-- ARGV 1 worker  2 slot of the completion  3 its op  4 id  5 token  6 result_ttl_ms  7 expected version or ''
--      8 slot of the claim  9 its op  10 nonce (16 hex)  11 lock (ttl|none)  12 lock_ttl_ms  13 heartbeat_ms  14 abort_after_ms
-- returns {'completed', then the answer of claim_job: 'job' … or 'empty' …} | {'apart'}
--@include common
--@include buckets
--@include raising
--@include ending
--@include starting
local worker, id, token, expects, nonce, lock = ARGV[1], ARGV[4], ARGV[5], ARGV[7], ARGV[10], ARGV[11]
local refused = version_error()
if refused then return refused end
local APART = {'apart'}
local terms = ARGV[6] .. ' ' .. ARGV[12] .. ' ' .. ARGV[13] .. ' ' .. ARGV[14]
if not valid(worker) or not valid(id) or #nonce ~= 16 or not find(nonce, '^%x+$')
  or #terms > 30 or not find(terms, '^[1-9]%d* [1-9]%d* [1-9]%d* [1-9]%d*$') or (lock ~= 'ttl' and lock ~= 'none') then
  return APART
end
local ending, starting, ended, started = worker .. ':' .. ARGV[2], worker .. ':' .. ARGV[8], ARGV[3] .. ' ', ARGV[9] .. ' '
local last = call('HMGET', stem .. 'ops', ending, starting)
local ended_before = last[1] and string.sub(last[1], 1, #ended) == ended
local started_before = last[2] and string.sub(last[2], 1, #started) == started
local now, micros, at = clock()
local answer, kept
if ended_before and started_before then
  answer = repeat_claim(string.sub(last[2], #started + 1), now)
  table.insert(answer, 1, string.sub(last[1], #ended + 1))
  return answer
end
if ended_before or started_before then return APART end

local body = read_attempt(id)
local conflict = expects ~= '' and body.version and expects ~= whole(body.version)
if body.state ~= 'active' or body.token ~= token or not body.begun or not body.version or conflict then return APART end
local stamp = next_stamp(micros)
local next_id = call('LINDEX', stem .. 'pending', '-1')
local first = call('ZRANGE', stem .. 'scheduled', '0', '0', 'WITHSCORES')
local due = first[2] and tonumber(first[2])
if not stamp or (due and due <= now) then return APART end
local job
if next_id then
  job = read_job(next_id)
  if not job or job[STATE] ~= 'pending' then return APART end
end
check_attempt(body.worker, body.deadline or (job and job[EXPECTED_MS] > 0))
if body.worker ~= worker then call('SCARD', stem .. 'held:' .. worker) end

local ran = math.max(0, now - body.begun)
local names, amounts = {'completed', 'run_ms', bucket('run_le_', ran)}, {1, ran, 1}
if job then
  local delay = math.max(0, now - job[READY_AT])
  names[4], names[5], names[6] = 'started', 'delay_ms', bucket('delay_le_', delay)
  amounts[4], amounts[5], amounts[6] = 1, delay, 1
end
local err = raise(names, amounts)
if err then return err end
note('completed', id, worker, token, '')
if job then -- before the other one ends: the worker's set never becomes empty in between
  answer, kept = start_attempt(next_id, job, worker, nonce, lock, ARGV[12], ARGV[13], ARGV[14], now, at)
  call('HSET', stem .. 'ops', ending, ended .. 'completed', starting, started .. kept)
else
  answer = {'empty', due and whole(due) or -1, now}
  call('DEL', stem .. 'wake')
  call('HSET', stem .. 'ops', ending, ended .. 'completed')
end
end_attempt(id, body.worker, body.deadline)
finish_body(id, body, at, ARGV[6])
invalidate(id, 'completed', stamp)
count_unheard()
table.insert(answer, 1, 'completed')
return answer
