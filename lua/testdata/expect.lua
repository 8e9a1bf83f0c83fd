-- Assertions about values and errors, for the tests in this folder.
local expect = {}

-- Fails unless both values print the same.
function expect.equal(got, wanted)
  local g, w = tostring(got), tostring(wanted)
  if type(got) ~= type(wanted) or g ~= w then
    error("expected " .. w .. ", got " .. g, 2)
  end
end

-- Fails unless f raises an error whose message contains each of the texts.
function expect.error(f, ...)
  local ok, message = pcall(f)
  if ok then error("expected an error with " .. tostring{...}, 2) end
  for _, text in ipairs {...} do
    if not message:find(text, 1, true) then
      error('expected an error with "' .. text .. '", got: ' .. message, 2)
    end
  end
end

-- Runs expect.error on each case, {f, text, ...}, and reports all failures together.
function expect.errors(cases)
  local wrong = {}
  for i, case in ipairs(cases) do
    local ok, message = pcall(expect.error, unpack(case))
    if not ok then wrong[#wrong + 1] = "case " .. i .. ": " .. message end
  end
  if #wrong > 0 then error(table.concat(wrong, "\n"), 2) end
end

return expect
