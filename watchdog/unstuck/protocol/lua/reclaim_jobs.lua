#!lua
-- Take condemned attempts away and place their jobs, each only if all the evidence it was judged on still holds.
-- KEYS 1 unstuck:{Q}:meta
-- ARGV 1 owner  2 epoch  3 op  4 run_id  5 replication id  6 max_rescues  7 retry_delay_ms  8 jitter in thousandths
--      9 dead_max  10 dead_ttl_ms  11 deadline_grace_ms
--      then for each job (at most 100): id, token, heartbeat_at, lock (held|missing|none), reason, threshold_ms, worker,
--      owner_beat (the worker's own last beat as judged, or ''), evidence (a short JSON text, kept with a dead job)
-- returns for each job 'action:cause:rescues': requeued | scheduled | dead_lettered | quarantined | lost_race | debris
--@include common
--@include ending
--@include placing
--@include fencing
local refused = version_error()
if refused then return refused end
local owner, epoch, op = ARGV[1], ARGV[2], ARGV[3]
local numbers = {}
for i = 6, 11 do
  numbers[i] = integer(ARGV[i])
  if not numbers[i] then return redis.error_reply('UNSTUCKVALUE ' .. i .. ' ' .. ARGV[i]) end
end
local jobs = (#ARGV - 11) / 9
if jobs < 1 or jobs > 100 or jobs ~= math.floor(jobs) then return redis.error_reply('UNSTUCKVALUE jobs ' .. jobs) end
local fenced = fence_error(epoch)
if fenced then return fenced end
local earlier = recalled('agent', 'reclaim', op)
if earlier then
  local answers = {}
  for word in string.gmatch(earlier, '%S+') do answers[#answers + 1] = word end
  return answers
end
local now, micros, at = clock()
local stamp, bad = next_stamp(micros)
if bad then return bad end
check_places()
check_attempt('', true)
redis.call('ZCARD', stem .. 'workers')
local counters, err = read_counters({'rescued', 'dead', 'dead_dropped', 'unheard'})
if err then return err end
local run_id = string.match(redis.call('INFO', 'server'), 'run_id:(%w+)')
local replication = string.match(redis.call('INFO', 'replication'), 'master_replid:(%w+)')
local moved_house = (run_id ~= ARGV[4] and 'run_id') or (replication ~= ARGV[5] and 'replication_id') or nil

-- Does the evidence still hold? nil, or which part has changed.
local function changed(id, body, token, beat, lock, reason, threshold, worker, owner_beat)
  if body[1] ~= 'active' then return 'state' end
  if (body[2] or '') ~= token then return 'token' end
  if (body[3] or '') ~= worker then return 'worker' end
  if reason == 'deadline_passed' then
    local by = integer(body[4])
    if not by or by == 0 or now <= by + numbers[11] then return 'deadline' end
    return nil
  end
  local index = redis.call('ZSCORE', stem .. 'active', id)
  if (body[5] or '') ~= beat then return 'heartbeat' end
  if index and tonumber(index) and tonumber(index) > (tonumber(beat) or 0) and beat ~= '' then return 'heartbeat' end
  if lock == 'missing' and redis.call('EXISTS', stem .. 'lock:' .. id) == 1 then return 'lock' end
  if reason == 'worker_gone' or reason == 'worker_dead' then
    if (redis.call('ZSCORE', stem .. 'workers', worker) or '') ~= owner_beat then return 'worker' end
  end
  if reason == 'worker_gone' then
    local listening = redis.call('PUBSUB', 'SHARDNUMSUB', stem .. 'control:' .. worker)
    if listening[2] ~= 0 then return 'connection' end
  elseif reason == 'worker_dead' then
    if redis.call('EXISTS', stem .. 'worker:' .. worker) == 1 then return 'worker' end
  elseif beat ~= '' and math.abs(now - (tonumber(beat) or 0)) < threshold then
    return 'heartbeat' -- a beat further in the future is of before the clock was set back, and has not changed since
  end
  return nil
end

local answers = {}
local touched, rescued, buried, dropped = false, 0, 0, 0
for i = 12, #ARGV, 9 do
  local id, token, beat, lock = ARGV[i], ARGV[i + 1], ARGV[i + 2], ARGV[i + 3]
  local reason, threshold, worker = ARGV[i + 4], integer(ARGV[i + 5]) or 0, ARGV[i + 6]
  local owner_beat, evidence = ARGV[i + 7], ARGV[i + 8]
  local job = stem .. 'job:' .. id
  local held = redis.pcall('SCARD', stem .. 'held:' .. worker)
  local body = redis.pcall('HMGET', job, 'state', 'token', 'worker', 'expected_by', 'heartbeat_at', 'payload',
    'rescues', 'version', 'attempt', 'cancelled_at')
  local answer
  if moved_house then
    answer = 'lost_race:' .. moved_house .. ':0'
  elseif type(held) == 'table' then -- one damaged key must not stop the others
    answer = 'lost_race:wrong_type:0'
  elseif body.err or not body[1] or (body[1] == 'active' and not body[6]) then
    if redis.call('ZSCORE', stem .. 'active', id) then -- in flight without a usable body
      end_attempt(id, worker, true)
      to_quarantine(id, job, body.err and 'wrong type' or 'no body')
      leave_active(id)
      touched = true
      answer = 'quarantined:body:0'
    else
      answer = 'lost_race:state:0'
    end
  elseif body[1] ~= 'active' and redis.call('ZSCORE', stem .. 'active', id) then
    end_attempt(id, worker, true) -- the state decides: an index entry of a job that is elsewhere is debris
    leave_active(id)
    touched = true
    answer = 'debris:' .. string.gsub(body[1], '[^%w_]', '') .. ':0'
  else
    local why = changed(id, body, token, beat, lock, reason, threshold, worker, owner_beat)
    local rescues, version, attempt = integer(body[7]), integer(body[8]), integer(body[9])
    if why then
      answer = 'lost_race:' .. why .. ':0'
    elseif not (rescues and version and attempt) then
      end_attempt(id, worker, true)
      to_quarantine(id, job, 'not a number')
      leave_active(id)
      touched = true
      answer = 'quarantined:number:0'
    else
      touched = true
      rescues = rescues + 1
      end_attempt(id, worker, true)
      redis.call('HSET', job, 'rescues', whole(rescues), 'version', whole(version + 1), 'last_worker', worker,
        'last_token', token, 'last_reason', reason, 'last_evidence', string.sub(evidence, 1, 4096))
      redis.call('HDEL', job, unpack(ATTEMPT_FIELDS))
      if body[10] then -- somebody wanted it to end: it has
        dropped = dropped + to_dead(id, job, now, 'cancelled', numbers[9], numbers[10])
        buried = buried + 1
        note('dead_lettered', id, worker, token, 'cancelled')
        answer = 'dead_lettered:cancelled:' .. whole(rescues)
      elseif rescues > numbers[6] then
        dropped = dropped + to_dead(id, job, now, 'max_rescues', numbers[9], numbers[10])
        buried = buried + 1
        note('dead_lettered', id, worker, token, reason)
        answer = 'dead_lettered:max_rescues:' .. whole(rescues)
      elseif rescues > 1 then -- it has killed or lost a worker before: wait longer each time
        local wait = math.min(600000, numbers[7] * 2 ^ math.min(rescues - 2, 30)) * numbers[8] / 1000
        to_scheduled(id, job, now + math.floor(math.min(600000, wait)))
        note('requeued', id, worker, token, reason)
        answer = 'scheduled:' .. reason .. ':' .. whole(rescues)
      else
        to_pending(id, job, at, 'RPUSH')
        note('requeued', id, worker, token, reason)
        answer = 'requeued:' .. reason .. ':' .. whole(rescues)
      end
      leave_active(id)
      rescued = rescued + 1
      invalidate(id, 'reclaimed', stamp)
      if valid(worker) then
        redis.call('SPUBLISH', stem .. 'control:' .. worker, '{"cancel":"' .. id .. '","token":"' .. token .. '"}')
      end
    end
  end
  answers[#answers + 1] = answer
end
if touched then
  redis.call('HSET', stem .. 'stats', 'rescued', whole(counters[1] + rescued), 'dead', whole(counters[2] + buried),
    'dead_dropped', whole(counters[3] + dropped), 'unheard', whole(counters[4] + unheard))
end
raise_fence(epoch)
remember('agent', 'reclaim', op, table.concat(answers, ' '))
return answers
