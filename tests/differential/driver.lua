-- What the cases of one process share: each begins, shows what it computes and ends. A line of the
-- standard output is `#what case rest`; what else is written belongs to nobody.
local strata = require "strata"
local nn, F = strata.nn, strata.F
local driver = {}

local function line(what, number, ...)
  print(table.concat({ "#" .. what, number, ... }, " "))
end

local function first_line(text) return (tostring(text):gsub("%s+", " ")) end

-- values.py's tensor(): whole numbers make these exact, so both sides have the same bits.
function driver.tensor(spec)
  local count = 1
  for _, size in ipairs(spec.shape) do count = count * size end
  local drawn = F.arange(count):mul(7919):add(spec.k * 104729):remainder(65521)
  local x
  if spec.dtype == "int64" then
    x = drawn:remainder(spec.high - spec.low):add(spec.low)
  elseif spec.dtype == "bool" then
    x = drawn:remainder(2):eq(0)
  else
    x = drawn:to("float64"):div(65521):mul(spec.high - spec.low):add(spec.low):to(spec.dtype)
  end
  x = x:reshape(spec.shape)
  if spec.permute then x = x:permute(spec.permute) end
  return spec.grad and x:requires_grad_() or x
end

local function text_of(value)
  if type(value) == "boolean" then return value and "1" or "0" end
  return string.format("%.17g", value)
end

function driver.show(number, name, x)
  if type(x) == "number" or type(x) == "boolean" then
    return line("value", number, name, type(x), "()", text_of(x))
  end
  local elements = x:detach():flatten():tolist()
  for i, element in ipairs(elements) do elements[i] = text_of(element) end
  line("value", number, name, x.dtype, "(" .. table.concat(x.shape, ",") .. ")",
       table.concat(elements, " "))
end

-- Weights for the sum of an output: what comes back is a gradient of all its elements.
function driver.slopes(y)
  return driver.tensor({ shape = y.shape, k = 3, low = -1, high = 1, dtype = y.dtype }):to(y.device)
end

-- A parameter for each floating input of what follows: its gradient is the input's. 0 + x is x.
driver.Probe = strata.layer {
  name = "Probe",
  init = function(self, ...)
    for i, shape in ipairs { ... } do
      if #shape > 0 then
        local declared = { fill = 0 }
        for d, size in ipairs(shape) do declared[d] = size end
        self["input" .. i - 1] = self:parameter(declared)
      end
    end
  end,
  forward = function(self, ...)
    local inputs = { ... }
    for i, x in ipairs(inputs) do
      local weight = self["input" .. i - 1]
      inputs[i] = weight and x + weight or x
    end
    return unpack(inputs)
  end,
}

-- What runs, and closes the engine however it ends.
function driver.closing(engine, run)
  return function(number)
    local ran, message = pcall(run, number)
    engine:close()
    if not ran then error(message, 0) end
  end
end

-- Runs one case: `make` may be refused, which is said; it gives what then runs.
function driver.case(number, make)
  line("begins", number)
  local made, run = pcall(make)
  if not made then return line("refused", number, first_line(run)) end
  local ran, message = pcall(run, number)
  if not ran then return line("late", number, first_line(message)) end
  line("done", number)
end

return driver
