-- Shared by the scripts that end an attempt on behalf of its own worker: complete, fail, release.
-- Answers an earlier run of the same operation, a refusal (S2: only the counter grows), or hands over the body.

-- returns answer (final, if not nil), body, counters, stamp, now as number, now as text
local function begin_finish(worker, slot, op, id, token, kind, expects)
  local refused = version_error()
  if refused then return refused end
  if not valid(worker) then return refuse_name('worker', worker) end
  if not valid(id) then return refuse_name('job id', id) end
  local earlier = recalled(worker, slot, op)
  if earlier then return earlier end
  local body = redis.call('HMGET', stem .. 'job:' .. id, 'state', 'token', 'worker', 'started_at', 'version', 'failures',
    'max_attempts', 'retry_delay_ms', 'cancelled_at', 'expected_by')
  if body[1] ~= 'active' or body[2] ~= token then
    if kind == 'completed' and body[1] == 'done' and body[2] == token then return 'completed' end
    -- Optimistic mode (a version is expected): that somebody else has finished the job is a conflict, not a fault.
    local conflict = expects and expects ~= '' and body[1] == 'done'
    local n, wrong = read_counters({conflict and 'conflicts' or 'refused'})
    if wrong then return wrong end
    redis.call('HSET', stem .. 'stats', conflict and 'conflicts' or 'refused', whole(n[1] + 1))
    return remember(worker, slot, op, conflict and 'conflict' or 'refused')
  end
  local begun, version, failures = integer(body[4]), integer(body[5]), integer(body[6])
  if not (begun and version and failures and integer(body[7]) and integer(body[8])) then
    return redis.error_reply('UNSTUCKNUMBER ' .. stem .. 'job:' .. id .. ' started_at, version, failures or limits')
  end
  local now, micros, at = clock()
  local stamp, bad = next_stamp(micros)
  if bad then return bad end
  check_attempt(body[3] or '')
  local ran = math.max(0, now - begun)
  local names = {kind, 'run_ms', bucket('run_le_', ran), 'unheard'}
  if kind ~= 'completed' then names[5], names[6], names[7] = 'dead', 'dead_dropped', 'retried' end
  local counters, err = read_counters(names)
  if err then return err end
  return nil, {worker = body[3] or '', version = version, failures = failures, max_attempts = integer(body[7]),
    retry_delay = integer(body[8]), cancelled = body[9], deadline = body[10], ran = ran},
    {names = names, values = counters}, stamp, now, at
end

-- After `invalidate`, whose events that nobody heard are counted along.
local function count_finish(counters, ran, dead, dropped, retried)
  local n, v = counters.names, counters.values
  redis.call('HSET', stem .. 'stats', n[1], whole(v[1] + 1), n[2], whole(v[2] + ran), n[3], whole(v[3] + 1),
    n[4], whole(v[4] + unheard))
  if dead > 0 or dropped > 0 or retried > 0 then
    redis.call('HSET', stem .. 'stats', n[5], whole(v[5] + dead), n[6], whole(v[6] + dropped), n[7], whole(v[7] + retried))
  end
end
