// Ranks exchange entries about their parameters as JSON lists, which are merged in the order of
// layers.
#include "engine/runtime/update/parameter_table.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <iterator>
#include <map>
#include <utility>

#include "engine/base/check.h"
#include "engine/base/value.h"
#include "engine/layers/axis/crossing.h"
#include "engine/runtime/update/histogram.h"
#include "engine/runtime/update/reductions.h"

namespace strata {
namespace {

/// Gathers lists of {layer, ...} entries from all ranks and sorts them by layer. The entries of one
/// layer keep their order within a rank.
Value::List GatherByLayer(Value::List entries, Transport& transport) {
  Value::List all;
  for (const std::string& text : transport.Gather(Value(std::move(entries)).ToJson())) {
    const Value list = Value::FromJson(text);
    all.insert(all.end(), list.as_list().begin(), list.as_list().end());
  }
  std::ranges::stable_sort(all, {}, [](const Value& entry) { return entry.as_list()[0].as_int(); });
  return all;
}

/// The bits of a number, because JSON cannot represent NaN.
int64_t Bits(double number) { return std::bit_cast<int64_t>(number); }

}  // namespace

ParameterTable::ParameterTable(std::vector<PlacedParameter> own, bool speaks,
                               std::shared_ptr<AxisComm> axis, Transport& transport)
    : own_(std::move(own)), speaks_(speaks), axis_(std::move(axis)) {
  Value::List entries;
  for (const PlacedParameter& parameter : own_) {
    if (!speaks_ || !parameter.gradient.defined() || !parameter.counted) continue;
    entries.push_back(
        Value::List{parameter.layer, parameter.path, SquareChunks(parameter.value.numel())});
  }
  std::map<std::string, int64_t> places;
  for (const Value& entry : GatherByLayer(std::move(entries), transport)) {
    places.emplace(entry.as_list()[1].as_string(), chunks_);
    chunks_ += entry.as_list()[2].as_int();
  }
  for (const PlacedParameter& parameter : own_) {
    const auto found = places.find(parameter.path);
    const bool counts = !axis_ || axis_->rank() == 0 || parameter.share;
    first_chunks_.push_back(found == places.end() || !counts ? -1 : found->second);
  }
}

at::Tensor ParameterTable::Whole(const PlacedParameter& parameter, What what) const {
  const bool is_packed = parameter.packed && what == What::kValues;
  at::Tensor tensor = is_packed               ? parameter.packed->Dense(at::kFloat)
                      : what == What::kValues ? parameter.value
                                              : parameter.gradient;
  if (!tensor.defined() || !parameter.counted) return {};
  if (parameter.share) tensor = JoinShares(tensor.detach(), *parameter.share, *axis_);
  return speaks_ ? tensor : at::Tensor();
}

at::Tensor ParameterTable::Copy(const std::string& path, What what) const {
  for (const PlacedParameter& parameter : own_) {
    if (parameter.path != path || !parameter.counted) continue;
    const at::Tensor whole = Whole(parameter, what);
    return whole.defined() ? whole.detach().to(at::kCPU).clone() : whole;
  }
  return {};
}

Value::List ParameterTable::Tell(What what,
                                 const std::function<Value::List(const at::Tensor&)>& tell,
                                 Transport& transport) const {
  Value::List entries;
  for (const PlacedParameter& parameter : own_) {
    const at::Tensor tensor = Whole(parameter, what);
    if (!tensor.defined()) continue;
    Value::List entry = {parameter.layer, parameter.path};
    std::ranges::move(tell(tensor), std::back_inserter(entry));
    entries.push_back(std::move(entry));
  }
  return GatherByLayer(std::move(entries), transport);
}

std::vector<TensorDigest> ParameterTable::Digests(What what, Transport& transport) const {
  const auto tell = [](const at::Tensor& tensor) {
    return Value::List{BitDigest(tensor), Bits(std::sqrt(SumOfSquares(tensor)))};
  };
  std::vector<TensorDigest> digests;
  for (const Value& entry : Tell(what, tell, transport)) {
    const Value::List& fields = entry.as_list();
    digests.push_back(
        {fields[1].as_string(), fields[2].as_string(), std::bit_cast<double>(fields[3].as_int())});
  }
  return digests;
}

Value ParameterTable::Histograms(double divisor, Transport& transport) const {
  const auto tell = [divisor](const at::Tensor& gradient) {
    return Value::List{HistogramOf(gradient, divisor)};
  };
  Value::Map histograms;
  for (const Value& entry : Tell(What::kGradients, tell, transport)) {
    const Value::List& fields = entry.as_list();
    histograms.emplace_back(fields[1].as_string(), fields[2]);
  }
  return Value::MakeMap(std::move(histograms));
}

}  // namespace strata
