-- What the tests beside this file say of values and errors.
local expect = {}

-- The two print the same.
function expect.equal(got, wanted)
  local g, w = tostring(got), tostring(wanted)
  if type(got) ~= type(wanted) or g ~= w then
    error("expected " .. w .. ", got " .. g, 2)
  end
end

-- f fails, and its message holds each of the texts.
function expect.error(f, ...)
  local ok, message = pcall(f)
  if ok then error("expected an error with " .. tostring{...}, 2) end
  for _, text in ipairs {...} do
    if not message:find(text, 1, true) then
      error('expected an error with "' .. text .. '", got: ' .. message, 2)
    end
  end
end

-- Each case is {f, text, ...}; all that are wrong are shown at once.
function expect.errors(cases)
  local wrong = {}
  for i, case in ipairs(cases) do
    local ok, message = pcall(expect.error, unpack(case))
    if not ok then wrong[#wrong + 1] = "case " .. i .. ": " .. message end
  end
  if #wrong > 0 then error(table.concat(wrong, "\n"), 2) end
end

return expect
