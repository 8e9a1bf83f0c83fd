// Adapt() collects the parameters of all layers with the innermost layer that has them (Candidate),
// finds those that the expression matches under one of their names, and marks them. A layer inside
// a stack (TransformerEncoder) is declared once and stands several times, so its parameters have
// several names in saves.
#include "engine/job/adapt.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <regex>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "engine/base/error.h"
#include "engine/base/text.h"
#include "engine/checkpoint/weights/weight_map.h"
#include "engine/job/freeze.h"
#include "engine/job/job_fields.h"
#include "engine/job/parameter_groups.h"
#include "engine/job/select.h"
#include "engine/layers/layer_types.h"
#include "engine/layers/own_type.h"

namespace strata {
namespace {

constexpr const char* kLayers = "adapt.layers";
constexpr const char* kTrain = "adapt.train";

/// A parameter, as the layer that has it declares it.
struct Candidate {
  LayerSpec* layer;                ///< the innermost layer that has it
  std::string weight;              ///< its name within that layer
  std::string path;                ///< of that layer within the job's layer: "1.0."
  std::vector<std::string> names;  ///< in saves, one for each copy in a stack
  /// In the published model: for each of `names`, the names of the tensors of which it is made.
  std::vector<std::vector<std::string>> published;
  std::string trouble;  ///< why it can have no low-rank part; "" = it can

  bool is_bias() const { return weight.ends_with("bias"); }
  const std::string& name() const { return names.front(); }
};

std::string TroubleWith(const LayerSpec& layer, const ParameterSpec& parameter, bool is_tied) {
  if (is_tied) return "it is tied";
  if (layer.scripted) return Str("it is a parameter of the script's layer ", layer.type);
  const LayerType* const type = FindLayerType(layer.type);
  if (type && type->multiplies_linear && parameter.shape.size() == 2) return "";
  return Str("it belongs to ", layer.type, " and is no matrix of a linear operator");
}

class Collecting {
 public:
  Collecting(const WeightMap& map, std::vector<Candidate>& places) : map_(map), places_(places) {}

  /// Adds the parameters of a layer of the job, and of those inside it.
  void AddLayer(std::vector<LayerSpec>& layers, int index) {
    saved_.clear();
    for (const NamedParameter& place : NamedParametersOf(layers, index)) {
      saved_[place.spec.name] = place.name;
    }
    LayerSpec& layer = layers[static_cast<size_t>(index)];
    Add(layer, {""}, "", !layer.tied_key.empty());
  }

 private:
  /// `before` are the beginnings of the names within the job's layer.
  void Add(LayerSpec& layer, const std::vector<std::string>& before, const std::string& path,
           bool is_tied) {
    std::set<std::string> inside;
    for (size_t i = 0; i < layer.children.size(); ++i) {
      std::vector<std::string> of_child;
      const std::vector<std::string> copies = ChildPaths(layer, static_cast<int>(i));
      for (const std::string& begin : before) {
        for (const std::string& copy : copies) of_child.push_back(Str(begin, copy, "."));
      }
      LayerSpec& child = layer.children[i];
      Add(child, of_child, Str(path, copies.front(), "."), is_tied || !child.tied_key.empty());
      for (const ParameterSpec& parameter : ParametersOf(child)) {
        for (const std::string& copy : copies) inside.insert(Str(copy, ".", parameter.name));
      }
    }
    for (const ParameterSpec& parameter : ParametersOf(layer)) {
      if (parameter.buffer || inside.contains(parameter.name)) continue;
      Candidate& place = places_.emplace_back(Candidate{&layer, parameter.name, path, {}, {}, {}});
      place.trouble = TroubleWith(layer, parameter, is_tied);
      for (const std::string& begin : before) AddName(place, saved_.at(begin + parameter.name));
    }
  }

  void AddName(Candidate& place, const std::string& name) {
    place.names.push_back(name);
    std::vector<std::string>& published = place.published.emplace_back();
    const auto found = map_.Find(name);
    if (!found) return;
    for (const std::vector<std::string>& names : found->theirs) published.push_back(names.front());
  }

  const WeightMap& map_;
  std::vector<Candidate>& places_;
  std::map<std::string, std::string> saved_;  // names in saves by names within the job's layer
};

std::vector<Candidate> PlacesIn(std::vector<LayerSpec>& layers, const WeightMap& map) {
  std::vector<Candidate> places;
  Collecting collecting(map, places);
  for (size_t i = 0; i < layers.size(); ++i) {
    collecting.AddLayer(layers, static_cast<int>(i));
  }
  return places;
}

std::string Listed(std::vector<std::string> names) {
  constexpr size_t kShown = 6;
  const size_t all = names.size();
  names.resize(std::min(all, kShown));
  return Join(names, ", ") + (all > kShown ? Str(" and ", all - kShown, " more") : "");
}

std::string NamesOf(const std::vector<Candidate*>& places) {
  std::vector<std::string> names;
  for (const Candidate* place : places) {
    names.insert(names.end(), place->names.begin(), place->names.end());
  }
  return Listed(names);
}

/// The parts of a name between dots: "q_proj" of "layers.0.self_attn.q_proj.weight".
void AddWords(const std::string& name, std::set<std::string>& words) {
  size_t begin = 0;
  for (size_t end = 0; end != name.npos; begin = end + 1) {
    end = name.find('.', begin);
    const std::string word = name.substr(begin, end - begin);
    if (word.find_first_not_of("0123456789") != word.npos) words.insert(word);
  }
}

/// The alternatives of the expression that are not inside parentheses: "a" and "(b|c)d" of
/// "a|(b|c)d".
std::vector<std::string> Alternatives(const std::string& regex) {
  std::vector<std::string> alternatives(1);
  int depth = 0;
  bool in_brackets = false;
  for (size_t i = 0; i < regex.size(); ++i) {
    const char c = regex[i];
    if (c == '|' && depth == 0 && !in_brackets) {
      alternatives.emplace_back();
      continue;
    }
    alternatives.back() += c;
    if (c == '\\' && i + 1 < regex.size()) {
      alternatives.back() += regex[++i];
    } else if (in_brackets) {
      in_brackets = c != ']';
    } else {
      in_brackets = c == '[';
      depth += (c == '(') - (c == ')');
    }
  }
  return alternatives;
}

/// Refuses an expression, or an alternative of it, without a match: shows the words of the names
/// that are nearest, or else all words.
[[noreturn]] void RefuseIdle(const std::string& regex, const char* subject,
                             const std::vector<Candidate>& places) {
  std::set<std::string> words;
  for (const Candidate& place : places) {
    for (const std::string& name : place.names) AddWords(name, words);
    for (const auto& names : place.published) {
      for (const std::string& name : names) AddWords(name, words);
    }
  }
  const std::vector<std::string> known(words.begin(), words.end());
  std::vector<std::string> hints;
  for (const std::string& alternative : Alternatives(regex)) {
    const std::string hint = Str("\"", Nearest(alternative, known), "\"");
    if (hint != "\"\"" && std::ranges::find(hints, hint) == hints.end()) hints.push_back(hint);
  }
  throw ConfigError(Str(subject, ": no parameter's name matches \"", regex, "\"",
                        hints.empty() ? Str("; the names have the words ", Listed(known))
                                      : Str("; did you mean ", Join(hints, " or "), "?")));
}

/// True if the expression is found in the place's names in saves. Throws ConfigError if it is found
/// in those of some copies in a stack only.
bool MatchesOwn(const Candidate& place, const std::regex& regex) {
  const auto matches = [&](const std::string& name) { return std::regex_search(name, regex); };
  const auto count = std::ranges::count_if(place.names, matches);
  if (count == 0 || count == std::ssize(place.names)) return count > 0;
  throw ConfigError(Str(kLayers, ": ", Plural(count, "copy"), " of ", place.layer->type, " with ",
                        place.weight, " of ", place.names.size(),
                        " are meant, but the copies of a stack are declared as one: name all of "
                        "them, or write the stack with strata.times"));
}

/// The same for its names in the published model. Throws ConfigError if the parameter is made of
/// several published ones and only some of these are meant.
bool MatchesPublished(const Candidate& place, const std::regex& regex) {
  const auto matches = [&](const std::string& name) { return std::regex_search(name, regex); };
  bool any = false;
  for (const std::vector<std::string>& names : place.published) {
    const auto count = std::ranges::count_if(names, matches);
    any |= count > 0;
    if (count == 0 || count == std::ssize(names) || !place.trouble.empty()) continue;
    throw ConfigError(Str(kLayers, ": ", place.name(), " holds ", Join(names, ", "),
                          " in one matrix, and the expression matches only ", count,
                          " of them: ", "one low-rank part goes beside the whole matrix"));
  }
  return any;
}

bool HasMatch(const std::vector<std::string>& names, const std::regex& regex) {
  return std::ranges::any_of(
      names, [&](const std::string& name) { return std::regex_search(name, regex); });
}

/// The alternatives of the expression that match no name in saves, or no published name.
/// `for_parts`: biases do not count.
std::set<std::string> IdleAlternatives(const std::string& text, const char* subject,
                                       bool by_published, bool for_parts,
                                       const std::vector<Candidate>& places) {
  std::set<std::string> idle;
  for (const std::string& alternative : Alternatives(text)) {
    const std::regex regex = CompileRegex(alternative, subject);
    const auto matches = [&](const Candidate& place) {
      if (for_parts && place.is_bias()) return false;
      if (!by_published) return HasMatch(place.names, regex);
      return std::ranges::any_of(place.published,
                                 [&](const auto& names) { return HasMatch(names, regex); });
    };
    if (std::ranges::none_of(places, matches)) idle.insert(alternative);
  }
  return idle;
}

/// The places whose parameters the expression matches by names in saves or by published names. In a
/// reading each alternative of the expression matches something. `for_parts`: those of weights;
/// biases beside them do not count.
std::vector<Candidate*> Matching(const std::string& text, const char* subject, bool for_parts,
                                 std::vector<Candidate>& places) {
  const std::regex regex = CompileRegex(text, subject);
  std::vector<Candidate*> own, published, biases;
  for (Candidate& place : places) {
    const bool is_own = MatchesOwn(place, regex), is_published = MatchesPublished(place, regex);
    if (!is_own && !is_published) continue;
    if (for_parts && place.is_bias()) {
      biases.push_back(&place);
      continue;
    }
    if (is_own) own.push_back(&place);
    if (is_published) published.push_back(&place);
  }
  if (own.empty() && published.empty()) {
    if (biases.empty()) RefuseIdle(text, subject, places);
    throw ConfigError(Str(subject, ": \"", text, "\" matches only biases: ", NamesOf(biases)));
  }
  const std::set<std::string> idle = IdleAlternatives(text, subject, false, for_parts, places);
  const std::set<std::string> idle_published =
      IdleAlternatives(text, subject, true, for_parts, places);
  for (const std::string& alternative : idle) {
    if (!idle_published.contains(alternative)) continue;
    Matching(alternative, subject, for_parts, places);  // refuses it
  }
  const bool is_reading = !own.empty() && idle.empty();
  const bool is_reading_published = !published.empty() && idle_published.empty();
  if (is_reading_published && !is_reading) return published;
  if (is_reading && (!is_reading_published || own == published)) return own;
  throw ConfigError(Str(subject, ": \"", text, "\" has two readings: by names in saves it is ",
                        NamesOf(own), "; by names of the published model (weights.map) it is ",
                        NamesOf(published), "; choose an expression for one of them"));
}

/// Throws ConfigError for what can have no low-rank part.
void CheckAdaptable(const std::vector<Candidate*>& matched, const std::string& text) {
  for (const Candidate* place : matched) {
    if (place->trouble.empty()) continue;
    throw ConfigError(Str(kLayers, ": \"", text, "\" matches ", place->name(),
                          ", which can have no low-rank part: ", place->trouble,
                          "; only weights of linear operators can"));
  }
}

/// Adds A and B of layers inside a script's layer to what that layer declares.
void Redeclare(LayerSpec& layer) {
  for (LayerSpec& child : layer.children) Redeclare(child);
  if (!layer.scripted) return;
  std::erase_if(layer.script_parameters, [&](const ParameterSpec& parameter) {
    return std::ranges::any_of(layer.children, [&](const LayerSpec& child) {
      return parameter.name.starts_with(child.name + ".");
    });
  });
  for (const LayerSpec& child : layer.children) {
    for (ParameterSpec& parameter : ParametersOf(child)) {
      parameter.name = Str(child.name, ".", parameter.name);
      layer.script_parameters.push_back(std::move(parameter));
    }
  }
}

/// The names in saves of A and B.
void AddParts(const Candidate& place, std::set<std::string>& names) {
  for (const std::string& name : place.names) {
    const std::string layer = name.substr(0, name.size() - place.weight.size());
    for (const char matrix : {'A', 'B'}) {
      names.insert(layer + LowRankName(place.weight, matrix));
    }
  }
}

/// Returns the names in saves of A and B of all parts.
std::set<std::string> SetLowRank(const std::vector<Candidate*>& weights, const AdaptSpec& adapt) {
  std::set<std::string> names;
  for (const Candidate* place : weights) {
    LowRankSpec& spec = place->layer->low_rank;
    spec.rank = adapt.options["rank"].as_int();
    spec.alpha = adapt.options["alpha"].as_double();
    spec.dropout = adapt.options["dropout"].as_double();
    spec.path = place->path;
    spec.weights.push_back(place->weight);
    AddParts(*place, names);
  }
  return names;
}

/// Adds what the option `train` names to the parameters that learn.
void AddTrained(const AdaptSpec& adapt, const std::vector<Candidate*>& weights,
                std::vector<Candidate>& places, std::set<std::string>& learns) {
  const std::string text = TextOf(adapt.options["train"]);
  if (text.empty()) return;
  for (Candidate* place : Matching(text, kTrain, /*for_parts=*/false, places)) {
    if (std::ranges::find(weights, place) != weights.end()) {
      throw ConfigError(Str(kTrain, ": \"", text, "\" matches ", place->name(),
                            ", which has a low-rank part and stays as it is"));
    }
    learns.insert(place->names.begin(), place->names.end());
  }
}

/// Marks the frozen weights of linear operators as packed. A Linear at the end of the list stays as
/// it is: the package bitsandbytes leaves out a model's head too, whose errors nothing corrects. So
/// does a layer with a dtype of its own.
void PackBase(const AdaptSpec& adapt, const std::set<std::string>& learns,
              std::vector<Candidate>& places, Job& job) {
  const std::string name = TextOf(adapt.options["base"]);
  if (name.empty()) return;
  bool any = false;
  for (Candidate& place : places) {
    LayerSpec& layer = *place.layer;
    const bool is_head = &layer == &job.layers.back() && layer.type == "Linear";
    const bool is_trained = std::ranges::any_of(
        place.names, [&](const std::string& own) { return learns.contains(own); });
    if (!place.trouble.empty() || is_head || is_trained || OwnType(layer)) continue;
    layer.packed.packing = ParsePacking(name);
    layer.packed.weights.push_back(place.weight);
    any = true;
  }
  if (any) return;
  throw ConfigError(Str("adapt.base = \"", name,
                        "\": there is no frozen weight of a linear operator ",
                        "that could be held so, other than that of a Linear at the end"));
}

void FreezeBase(const std::set<std::string>& learns, Job& job) {
  std::set<std::string> base;
  for (size_t i = 0; i < job.layers.size(); ++i) {
    std::vector<std::string> frozen;
    for (const NamedParameter& place : NamedParametersOf(job.layers, static_cast<int>(i))) {
      if (learns.contains(place.name)) continue;
      frozen.push_back(place.spec.name);
      base.insert(place.name);
    }
    if (!frozen.empty()) FreezeParameters(job.layers[i], std::move(frozen));
  }
  job.adapt.base.assign(base.begin(), base.end());
}

}  // namespace

const std::vector<OptionTable>& AdaptTypes() {
  static const std::vector<OptionTable> types = {
      {"lora",
       {Field::String("layers",
                      "the weights that get low-rank parts: a regular expression on the names of "
                      "parameters, q_proj|v_proj")
            .NamedOnly(),
        Field::Int("rank", "features between the two matrices of a part")
            .AtLeast(1)
            .NamedOnly()
            .Default(8),
        Field::Number("alpha", "a part's output is multiplied by alpha / rank")
            .Above(0)
            .NamedOnly()
            .Default(16.0),
        Field::Number("dropout", "share of a part's inputs set to 0 in training")
            .AtLeast(0)
            .Below(1)
            .NamedOnly()
            .Default(0.0),
        Field::String("train", "parameters that are trained besides: a regular expression")
            .NamedOnly()
            .Optional(),
        Field::Choice("base", PackingNames(),
                      "how the frozen weights of linear operators are held: in 4 bits (as QLoRA "
                      "does) or in 8; all but those of a Linear at the end of the list")
            .NamedOnly()
            .Optional(),
        Field::String("from", "a folder of PEFT, or a save, whose parts it begins with")
            .NamedOnly()
            .Optional()}}};
  return types;
}

bool AdaptSpec::IsBase(const std::string& name) const {
  return std::ranges::binary_search(base, name);
}

void Adapt(const JobKeys& keys, Job& job) {
  if (!keys.given("adapt")) return;
  if (!keys["freeze"].is_null()) {  // a flag --freeze=none takes the script's away
    keys.Refuse(
        "adapt freezes all parameters but its low-rank parts, and freeze names others; keep one of "
        "them (adapt's option train names what learns besides)");
  }
  AdaptSpec& adapt = job.adapt;
  std::tie(adapt.type, adapt.options) = keys.TypedTable("adapt", AdaptTypes(), "");
  keys.Placed([&] {
    const Value& map = job.weights.map;
    const auto call = [&](const Value::List& arguments) {
      return keys.Ask("weights.map", map.as_function(), arguments);
    };
    std::vector<Candidate> places = PlacesIn(job.layers, WeightMap::From(map, call));
    const std::string layers = adapt.options["layers"].as_string();
    const std::vector<Candidate*> weights = Matching(layers, kLayers, /*for_parts=*/true, places);
    CheckAdaptable(weights, layers);
    std::set<std::string> learns = SetLowRank(weights, adapt);
    AddTrained(adapt, weights, places, learns);
    PackBase(adapt, learns, places, job);
    for (LayerSpec& layer : job.layers) Redeclare(layer);
    FreezeBase(learns, job);
  });
}

}  // namespace strata
