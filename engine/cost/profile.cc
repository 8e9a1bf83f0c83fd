#include "engine/cost/profile.h"

#include <cmath>

#include "engine/base/check.h"
#include "engine/base/error.h"
#include "engine/base/text.h"
#include "engine/cost/measured_file.h"
#include "engine/layers/layer_types.h"

namespace strata {
namespace {

constexpr int64_t kVersion = 1;

double NumberAt(const Value& table, const char* name, const char* unit, const std::string& where) {
  const Value& value = table[name];
  if (!value.is_number() || !std::isfinite(value.as_double()) || value.as_double() < 0) {
    throw ConfigError(
        Str(where, ": \"", name, "\" must be ", unit, " of at least 0, got ", value.Describe()));
  }
  return value.as_double();
}

double SecondsAt(const Value& table, const char* name, const std::string& where) {
  return NumberAt(table, name, "seconds", where);
}

/// The share of a pass that one rank of the model axis computes.
double ShareOf(const Work& own, const Work& whole) {
  if (whole.flops > 0) return own.flops / whole.flops;
  return whole.bytes > 0 ? own.bytes / whole.bytes : 1;
}

void SetPasses(LayerCost& cost, const PassSeconds& seconds, const LayerCost& whole,
               const LinkRates& link, const DeviceRates& rates) {
  const auto set = [&](Work& own, double taken, const Work& of_whole) {
    own.seconds = taken * ShareOf(own, of_whole) + AxisSeconds(own, link, rates);
  };
  set(cost.forward, seconds.forward, whole.forward);
  set(cost.input_grad, seconds.input_grad, whole.input_grad);
  set(cost.weight_grad, seconds.weight_grad, whole.weight_grad);
}

void RefuseCosts(const std::string& where, const std::string& why) {
  throw ConfigError(Str(where, ": these are no costs of this job: ", why));
}

/// Throws ConfigError unless the number in the file is the one that the job has.
void ExpectInt(const Value& value, const char* name, int64_t expected, const std::string& where) {
  if (value[name].is_int() && value[name].as_int() == expected) return;
  RefuseCosts(where, Str(name, " is ", value[name].Describe(), ", the job has ", expected));
}

}  // namespace

Value ToValue(const PassSeconds& seconds) {
  return Value::MakeMap({{"forward", seconds.forward},
                         {"input_grad", seconds.input_grad},
                         {"weight_grad", seconds.weight_grad}});
}

PassSeconds PassSecondsOf(const Value& value, const std::string& where) {
  if (!value.is_map()) throw ConfigError(Str(where, ": expected seconds, got ", value.Describe()));
  return {SecondsAt(value, "forward", where), SecondsAt(value, "input_grad", where),
          SecondsAt(value, "weight_grad", where)};
}

Value ToValue(const LinkRates& link) {
  return Value::MakeMap({{"latency", link.latency}, {"bandwidth", link.bandwidth}});
}

LinkRates LinkRatesOf(const Value& value, const std::string& where) {
  if (!value.is_map()) throw ConfigError(Str(where, ": expected a link, got ", value.Describe()));
  return {SecondsAt(value, "latency", where),
          NumberAt(value, "bandwidth", "bytes per second", where)};
}

void SetSeconds(ModelCosts& costs, const Profile& profile, const ModelCosts& whole,
                const std::string& device) {
  const DeviceRates rates = NominalDevice(device);
  STRATA_CHECK(costs.layers.size() == profile.layers.size()) << profile.layers.size();
  const auto set = [&](LayerCost& cost, const PassSeconds& seconds, const LayerCost& of_whole) {
    if (!profile.is_whole && seconds == PassSeconds()) return;
    SetPasses(cost, seconds, of_whole, profile.link, rates);
  };
  for (size_t i = 0; i < costs.layers.size(); ++i) {
    set(costs.layers[i], profile.layers[i], whole.layers[i]);
  }
  set(costs.loss, profile.loss, whole.loss);
  if (profile.link.takes_time()) costs.link = profile.link;
  costs.seconds_from = profile.seconds_from;
  if (!profile.is_whole) return;
  costs.update_seconds = profile.update;
  costs.norm_seconds = profile.norm;
  costs.clear_seconds = profile.clear;
  costs.action_seconds = profile.action;
  costs.ran = profile.ran;
  costs.input_seconds = profile.input;
  costs.target_seconds = profile.target;
}

std::string LayerKey(const MeasureTask& task, size_t layer) {
  LayerSpec spec = task.job->layers[layer];
  spec.name.clear();
  spec.tied_key.clear();
  spec.where.clear();
  Value key;
  key.Append(spec.ToValue());
  key.Append(spec.frozen);
  const TensorSpecs& input = layer == 0 ? task.input : task.outputs[layer - 1];
  key.Append(ToString(input));
  key.Append(ToString(task.outputs[layer]));
  key.Append(layer == 0 ? "" : task.job->layers[layer - 1].type);
  const Precision& precision = task.job->precision;
  if (precision.is_half()) {
    key.Append(Str(DTypeName(precision.compute), " ", DTypeName(precision.params)));
  }
  return Digest(key.ToJson());
}

Value ProfileValue(const Profile& profile, const MeasureTask& task) {
  Value::List layers;
  for (size_t i = 0; i < profile.layers.size(); ++i) {
    const LayerSpec& spec = task.job->layers[i];
    Value layer =
        Value::MakeMap({{"layer", LayerPath(spec, static_cast<int>(i))}, {"type", spec.type}});
    const Value seconds = ToValue(profile.layers[i]);
    for (const auto& [name, value] : seconds.as_map()) layer.Set(name, value);
    layers.push_back(std::move(layer));
  }
  return Value::MakeMap({{"costs", kVersion},
                         {"job", task.job->name},
                         {"device", task.device},
                         {"threads", task.threads},
                         {"micro_batch_size", task.batch.micro_batch_size},
                         {"layers", std::move(layers)},
                         {"loss", ToValue(profile.loss)},
                         {"update", profile.update},
                         {"norm", profile.norm},
                         {"clear", profile.clear},
                         {"input", profile.input},
                         {"target", profile.target},
                         {"link", ToValue(profile.link)}});
}

Profile ReadProfile(const Value& value, const MeasureTask& task, const std::string& where) {
  if (!value.is_map() || !value.Has("costs")) RefuseCosts(where, "there is no \"costs\" = 1");
  ExpectInt(value, "costs", kVersion, where);
  ExpectInt(value, "micro_batch_size", task.batch.micro_batch_size, where);
  const std::vector<LayerSpec>& layers = task.job->layers;
  const Value& list = value["layers"];
  if (!list.is_list() || list.as_list().size() != layers.size()) {
    RefuseCosts(where, Str("\"layers\" must be a list of ", layers.size(), ", one for each layer"));
  }
  Profile profile;
  for (size_t i = 0; i < layers.size(); ++i) {
    const Value& layer = list.as_list()[i];
    const std::string place = Str(where, ": layer ", i);
    profile.layers.push_back(PassSecondsOf(layer, place));
    if (layer["type"] != Value(layers[i].type)) {
      RefuseCosts(where, Str("layer ", i, " is ", layer["type"].Describe(), ", the job's is ",
                             layers[i].type));
    }
  }
  profile.loss = PassSecondsOf(value["loss"], Str(where, ": the loss"));
  profile.update = SecondsAt(value, "update", where);
  profile.norm = SecondsAt(value, "norm", where);
  profile.clear = SecondsAt(value, "clear", where);
  profile.input = SecondsAt(value, "input", where);
  profile.target = SecondsAt(value, "target", where);
  if (value.Has("link")) profile.link = LinkRatesOf(value["link"], where);
  return profile;
}

Profile ReadProfile(const std::string& path, const MeasureTask& task) {
  Profile profile = ReadProfile(ReadMeasuredFile("costs", path), task, Str("costs: ", path));
  profile.seconds_from = SecondsFrom::kFile;
  return profile;
}

}  // namespace strata
