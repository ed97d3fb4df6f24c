-- Shared by the scripts that end an attempt on behalf of its own worker: complete, fail, release.
-- Answers an earlier run of the same operation, a refusal (S2: only the counter grows), or hands over the body.

-- returns answer (final, if not nil), body, stamp, now as number, now as text
local function begin_finish(worker, slot, op, id, token, kind, expects)
  local refused = version_error()
  if refused then return refused end
  if not valid(worker) then return refuse_name('worker', worker) end
  if not valid(id) then return refuse_name('job id', id) end
  local earlier = recalled(worker, slot, op)
  if earlier then return earlier end
  local body = read_attempt(id)
  if body.state ~= 'active' or body.token ~= token then
    if kind == 'completed' and body.state == 'done' and body.token == token then return 'completed' end
    -- Optimistic mode (a version is expected): that somebody else has finished the job is a conflict, not a fault.
    local conflict = expects and expects ~= '' and body.state == 'done'
    local wrong = raise({conflict and 'conflicts' or 'refused'}, {1})
    if wrong then return wrong end
    return remember(worker, slot, op, conflict and 'conflict' or 'refused')
  end
  if not (body.begun and body.version) then
    return redis.error_reply('UNSTUCKNUMBER ' .. stem .. 'job:' .. id .. ' started_at or version')
  end
  local now, micros, at = clock()
  local stamp, bad = next_stamp(micros)
  if bad then return bad end
  check_attempt(body.worker, body.deadline)
  body.ran = math.max(0, now - body.begun)
  return nil, body, stamp, now, at
end

-- For fail and release, which know only later what they will count.
local function read_finish_counters(kind, ran)
  local names = {kind, 'run_ms', bucket('run_le_', ran), 'unheard', 'dead', 'dead_dropped', 'retried'}
  local values, err = read_counters(names)
  return {names = names, values = values}, err
end

-- After `invalidate`, whose events that nobody heard are counted along.
local function count_finish(counters, ran, dead, dropped, retried)
  local n, v = counters.names, counters.values
  call('HSET', stem .. 'stats', n[1], whole(v[1] + 1), n[2], whole(v[2] + ran), n[3], whole(v[3] + 1),
    n[4], whole(v[4] + unheard))
  if dead > 0 or dropped > 0 or retried > 0 then
    call('HSET', stem .. 'stats', n[5], whole(v[5] + dead), n[6], whole(v[6] + dropped), n[7], whole(v[7] + retried))
  end
end
