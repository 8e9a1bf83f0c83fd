#include "engine/layers/cost_rules.h"

#include <algorithm>
#include <array>
#include <optional>

#include "engine/base/check.h"
#include "engine/base/error.h"
#include "engine/base/text.h"
#include "engine/layers/own_type.h"

namespace strata {
namespace layers {

CostRule CallCost(int more) {
  return [more](LayerTape& tape, const LayerSpec& spec, const std::vector<Traced>& inputs,
                const TensorSpecs& outputs) -> std::vector<Traced> {
    const Traced& x = inputs[0];
    const Traced y = tape.Fresh(outputs[0], x.parts);
    TouchElements(tape, x, y);
    const Keeps keeps = KeepsOf(spec);
    if (keeps != Keeps::kNothing) tape.Keep(keeps == Keeps::kOutput ? y : x);
    for (int i = 0; i < more; ++i) tape.Keep(tape.Fresh(x));
    return {y};
  };
}

std::vector<Traced> ViewCost(LayerTape& tape, const LayerSpec&, const std::vector<Traced>& inputs,
                             const TensorSpecs& outputs) {
  std::vector<Traced> views;
  for (size_t i = 0; i < outputs.size(); ++i) views.push_back(tape.View(inputs[i], outputs[i]));
  return views;
}

CostRule NormCost(double (*statistics)(const LayerSpec& spec, const Traced& x)) {
  return [statistics](LayerTape& tape, const LayerSpec& spec, const std::vector<Traced>& inputs,
                      const TensorSpecs&) -> std::vector<Traced> {
    Traced x = inputs[0];
    const double count = statistics(spec, x);
    const bool is_split = !SplitOn(tape, spec).empty();
    const double whole = static_cast<double>(x.spec.bytes());
    if (is_split && !spec.input_shard) {
      tape.Cross(0, tape.Gathered(whole));
      x = tape.Fresh(x.spec, tape.model());
    }
    const Traced y = Normalize(tape, x, count);
    if (!is_split || spec.output_shard) return {y};
    tape.Cross(tape.Gathered(whole), 0);
    return {tape.Fresh(y.spec)};
  };
}

CostRule LossCost(bool keeps_input) {
  return [keeps_input](LayerTape& tape, const LayerSpec&, const std::vector<Traced>& inputs,
                       const TensorSpecs&) -> std::vector<Traced> {
    const Traced& output = inputs[0];
    tape.Keep(keeps_input ? output : tape.Fresh(output));
    tape.Touch(4 * output.bytes(), 4 * output.bytes());
    tape.Scratch(0, output.bytes());  // the gradient of what is kept
    return {};
  };
}

std::string SplitOn(const LayerTape& tape, const LayerSpec& spec) {
  return tape.model() > 1 ? SplitOf(spec) : "";
}

void TouchElements(LayerTape& tape, const Traced& x, const Traced& y) {
  tape.Touch(x.bytes() + y.bytes(), 2 * y.bytes() + x.bytes());
}

Traced Apply(LayerTape& tape, const Traced& x, bool keeps_output) {
  const Traced y = tape.Fresh(x);
  TouchElements(tape, x, y);
  tape.Keep(keeps_output ? y : x);
  return y;
}

Traced ApplyAdaptiveMean(LayerTape& tape, const Traced& x, const TensorSpec& output, size_t dims) {
  const Traced y = tape.Fresh(output, x.parts);
  TouchElements(tape, x, y);
  if (Product(std::span(output.shape).last(dims)) > 1) tape.Keep(x);
  return y;
}

Traced DropOnGpu(LayerTape& tape, const Traced& x) {
  const Traced y = tape.Fresh(x);
  tape.Touch(x.bytes() + y.bytes(), x.bytes() + y.bytes());
  return y;
}

Traced ApplyDropout(LayerTape& tape, const Traced& x, double p) {
  if (p == 0) return x;
  const LayerTape::Part part(tape, "Dropout");
  if (!tape.host().is_cpu) return DropOnGpu(tape, x);
  tape.Keep(tape.Fresh(x));  // the factors
  const Traced y = tape.Fresh(x);
  TouchElements(tape, x, y);
  tape.Touch(3 * x.bytes(), 0);  // the factors are drawn and scaled
  return y;
}

Traced Normalize(LayerTape& tape, const Traced& x, double statistics) {
  tape.Keep(x);
  tape.Keep(tape.Fresh(x, 2 * statistics));
  const Traced y = tape.Fresh(x);
  tape.Touch(2 * x.bytes() + y.bytes(), 5 * x.bytes(), 2 * x.bytes());
  return y;
}

namespace {

void MultiplyBy(LayerTape& tape, bool is_frozen, const Traced& x, const Traced& y, double flops,
                double weights) {
  const double bytes = static_cast<double>(DTypeSize(tape.compute())) * weights;
  const double sums = std::max(4 * weights, bytes);  // the gradient sums are in float32
  tape.Multiply(flops, /*has_weight=*/true, is_frozen);
  tape.Touch(x.bytes() + bytes + y.bytes(), y.bytes() + bytes + x.bytes(),
             is_frozen ? 0 : x.bytes() + y.bytes() + 2 * sums);
  if (!is_frozen && bytes < sums) tape.Scratch(0, bytes);  // one product, before it is added
}

/// Counts that packed weights are written as dense ones in the forward and in the backward. Returns
/// the bytes of the dense ones.
double TouchUnpacked(LayerTape& tape, double weights) {
  const double bytes = static_cast<double>(DTypeSize(tape.compute())) * weights;
  tape.Touch(bytes, bytes);
  return bytes;
}

/// Counts the dense matrix of a packed weight, which exists during a product, as scratch memory.
/// `more`: the bytes of scratch memory that the backward needs besides.
void Unpack(LayerTape& tape, double weights, double more) {
  const double bytes = TouchUnpacked(tape, weights);
  tape.Scratch(bytes, bytes + more);
}

Traced MultiplyRows(LayerTape& tape, bool is_frozen, const Traced& x, double in, double out,
                    int parts) {
  const double rows = x.elements() / in;
  TensorSpec shape = x.spec;
  shape.shape.back() = static_cast<int64_t>(out) * parts;
  const Traced y = tape.Fresh(std::move(shape), parts);
  MultiplyBy(tape, is_frozen, x, y, 2 * rows * in * out, in * out);
  if (is_frozen) return y;
  tape.Defer(x, y);
  tape.MultiplyRows();
  return y;
}

}  // namespace

void Multiply(LayerTape& tape, const LayerSpec& spec, const Traced& x, const Traced& y,
              double flops, double weights) {
  MultiplyBy(tape, spec.frozen, x, y, flops, weights);
}

void MultiplyDeferred(LayerTape& tape, const LayerSpec& spec, const Traced& x, const Traced& y,
                      double flops, double weights) {
  Multiply(tape, spec, x, y, flops, weights);
  if (!spec.frozen) tape.Defer(x, y);
}

Traced ApplyLinear(LayerTape& tape, const LayerSpec& spec, std::string_view weight, const Traced& x,
                   double in, double out, int parts) {
  const LayerTape::Part part(tape, "Linear");
  const Traced y = MultiplyRows(tape, spec.IsFrozen(weight), x, in, out, parts);
  const bool has_part = spec.low_rank.Has(weight);
  if (spec.packed.Has(weight)) Unpack(tape, in * out, has_part ? x.bytes() : 0);
  if (!has_part) return y;
  const auto rank = static_cast<double>(spec.low_rank.rank);
  const Traced dropped = ApplyDropout(tape, x, spec.low_rank.dropout);
  const Traced a = MultiplyRows(tape, spec.frozen, dropped, in, rank, 1);
  const Traced scaled = tape.Fresh(a);
  TouchElements(tape, a, scaled);
  const Traced b = MultiplyRows(tape, spec.frozen, scaled, rank, out, parts);
  tape.Touch(3 * b.bytes(), 0);  // b is added to y
  tape.Scratch(b.bytes(),
               dropped.bytes());  // b; the second gradient of x, before the two are added
  return y;
}

}  // namespace layers

namespace {

/// The number of elements of the layer's first matrix whose two sizes are the last dims of x and y;
/// 0 if there is none.
double MatrixBetween(const LayerSpec& spec, const TensorSpec& x, const TensorSpec& y) {
  if (x.shape.empty() || y.shape.empty() || !IsFloating(x.dtype)) return 0;
  for (const ParameterSpec& parameter : ParametersOf(spec)) {
    if (parameter.shape.size() != 2) continue;
    std::array<int64_t, 2> ends = {x.shape.back(), y.shape.back()};
    std::array<int64_t, 2> sizes = {parameter.shape[0], parameter.shape[1]};
    std::ranges::sort(ends);
    std::ranges::sort(sizes);
    if (ends == sizes) return static_cast<double>(parameter.elements());
  }
  return 0;
}

/// If the layer looks up integer inputs in a table, adds the traffic of the table's gradient. It
/// covers all rows: it is set to zero, filled and added up.
void TouchTables(LayerTape& tape, const LayerSpec& spec, const Traced& x, const Traced& y) {
  if (IsFloating(x.spec.dtype) || y.spec.shape.empty() || spec.frozen) return;
  for (const ParameterSpec& parameter : ParametersOf(spec)) {
    const bool is_table = !parameter.buffer && parameter.shape.size() == 2 &&
                          parameter.shape.back() == y.spec.shape.back();
    if (is_table) tape.Touch(0, 4 * 4 * static_cast<double>(parameter.elements()));
  }
}

/// A guess of the operations of the layers inside a user's own layer: each weight of at least two
/// dims is multiplied once at every position of the input. An Embedding's weight is looked up and
/// counts as 0.
double ProductsInside(const LayerSpec& spec, double places) {
  if (spec.type == "Embedding" && !spec.scripted) return 0;
  if (!spec.scripted || spec.children.empty()) {
    double elements = 0;
    for (const ParameterSpec& parameter : ParametersOf(spec)) {
      const bool multiplies = !parameter.buffer && parameter.shape.size() > 1;
      if (multiplies) elements += static_cast<double>(parameter.elements());
    }
    return 2 * elements * places;
  }
  double flops = 0;
  for (const LayerSpec& child : spec.children) flops += ProductsInside(child, places);
  return flops;
}

/// Adds the products inside a user's own layer, which may have some frozen weights.
void MultiplyInside(LayerTape& tape, const LayerSpec& spec, const Traced& x, const Traced& y,
                    double flops) {
  const auto all = static_cast<double>(CountParameters(spec));
  const auto frozen = static_cast<double>(CountFrozen(spec));
  if (frozen > 0) layers::MultiplyBy(tape, true, x, y, flops * frozen / all, frozen);
  if (frozen == all) return;
  layers::MultiplyBy(tape, false, x, y, flops * (1 - frozen / all), all - frozen);
  tape.Defer(x, y);
}

/// The elements of the layer's packed weights.
double PackedElements(const LayerSpec& spec) {
  double elements = 0;
  for (const ParameterSpec& parameter : ParametersOf(spec)) {
    if (parameter.packing != Packing::kNone) elements += static_cast<double>(parameter.elements());
  }
  return elements;
}

/// The number of positions of a tensor: its tokens, or the pixels of its images.
double PlacesOf(const Traced& x) {
  if (!IsFloating(x.spec.dtype) || x.spec.shape.size() < 2) return x.elements();
  const bool is_image = x.spec.shape.size() == 4;
  return x.elements() / static_cast<double>(is_image ? x.spec.shape[1] : x.spec.shape.back());
}

std::vector<Traced> TraceScripted(LayerTape& tape, const LayerSpec& spec,
                                  const std::vector<Traced>& inputs, const TensorSpecs& outputs) {
  tape.Guess();
  const TensorSpecs taken = WithType(SpecsOf(inputs), DType::kFloat32, tape.compute());
  const auto memory =
      tape.script() ? tape.script()->MeasureMemory(spec, taken) : std::optional<LayerMemory>();
  const Traced& x = inputs.front();
  std::vector<Traced> given;
  for (const TensorSpec& output : outputs) {
    given.push_back(memory && memory->passes_input ? tape.View(x, output) : tape.Fresh(output));
  }
  const Traced& y = given.front();
  const bool has_layers = spec.scripted && !spec.children.empty();
  const double matrix = MatrixBetween(spec, x.spec, y.spec);
  const double flops = has_layers   ? ProductsInside(spec, PlacesOf(x))
                       : matrix > 0 ? 2 * matrix * x.elements() / x.last_dim()
                                    : 0;
  const LayerTape::Part part(tape, flops > 0 && !has_layers ? "Linear" : "");
  if (has_layers && flops > 0) {
    MultiplyInside(tape, spec, x, y, flops);
    layers::TouchUnpacked(tape, PackedElements(spec));
  } else if (flops > 0 && memory) {
    layers::Multiply(tape, spec, x, y, flops, matrix);
    tape.AllAtOnce();  // autograd computes the weights' gradients with the input's
  } else if (flops > 0) {
    layers::MultiplyDeferred(tape, spec, x, y, flops, matrix);
  } else {
    layers::TouchElements(tape, x, y);
    TouchTables(tape, spec, x, y);
  }
  if (!memory) return given;
  if (memory->keeps_input) std::ranges::for_each(inputs, [&](const Traced& t) { tape.Keep(t); });
  if (memory->keeps_output) std::ranges::for_each(given, [&](const Traced& t) { tape.Keep(t); });
  tape.Measured(*memory);
  return given;
}

const LayerType& TypeWithRule(const LayerSpec& spec) {
  const LayerType* type = FindLayerType(spec.type);
  if (type && type->cost) return *type;
  throw ConfigError(Str(Place(spec.where), "what ", spec.type,
                        " costs is not known: its LayerType needs a cost rule"));
}

/// Records a layer with a type of its own (own_type.h): the layer itself in that type, and the
/// conversions of its inputs and outputs that have another type.
std::vector<Traced> TraceInOwnType(LayerTape& tape, const LayerSpec& spec, DType own,
                                   const std::vector<Traced>& inputs, const TensorSpecs& outputs) {
  const DType before = tape.compute();
  tape.set_compute(own);
  double converted = 0;
  std::vector<Traced> taken;
  for (const Traced& x : inputs) {
    const bool has_type = !IsFloating(x.spec.dtype) || x.type() == own;
    taken.push_back(has_type ? x : tape.Fresh({x.spec.shape, DType::kFloat32}, x.parts));
    if (has_type) continue;
    tape.Touch(x.bytes() + taken.back().bytes(), x.bytes() + taken.back().bytes());
    converted += taken.back().bytes();
  }
  TensorSpecs inside = outputs;
  for (TensorSpec& spec_inside : inside) {
    if (IsFloating(spec_inside.dtype)) spec_inside.dtype = DType::kFloat32;
  }
  const std::vector<Traced> computed = TypeWithRule(spec).cost(tape, spec, taken, inside);
  tape.set_compute(before);
  std::vector<Traced> given;
  for (size_t i = 0; i < computed.size(); ++i) {
    const Traced& y = computed[i];
    const Traced fresh = {outputs[i], -1, y.parts, before};
    const bool has_type = fresh.type() == y.type();
    given.push_back(has_type ? tape.View(y, outputs[i]) : tape.Fresh(outputs[i], y.parts));
    if (has_type) continue;
    tape.Touch(y.bytes() + fresh.bytes(), y.bytes() + fresh.bytes());
    converted += y.bytes();
  }
  tape.Scratch(converted, converted);
  return given;
}

}  // namespace

std::vector<Traced> TraceLayer(LayerTape& tape, const LayerSpec& spec,
                               const std::vector<Traced>& inputs, const TensorSpecs& outputs) {
  STRATA_CHECK(!inputs.empty()) << spec.type;
  const LayerTape::Part part(tape, spec.has_scripted_forward() ? "" : spec.type);
  if (spec.has_scripted_forward()) return TraceScripted(tape, spec, inputs, outputs);
  if (const std::optional<DType> own = OwnType(spec)) {
    return TraceInOwnType(tape, spec, *own, inputs, outputs);
  }
  return TypeWithRule(spec).cost(tape, spec, inputs, outputs);
}

void TraceLoss(LayerTape& tape, const LayerSpec& loss) {
  const layers::CostRule cost = loss.scripted ? layers::LossCost() : TypeWithRule(loss).cost;
  cost(tape, loss, tape.inputs(), {});
  if (loss.scripted) tape.Guess();
}

}  // namespace strata
