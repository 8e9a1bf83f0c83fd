// Conversion between a Manifest and manifest.json, in both directions. The text that is read is
// checked entry by entry.
#include "engine/checkpoint/manifest.h"

#include <algorithm>
#include <array>
#include <limits>
#include <map>
#include <set>

#include "engine/base/check.h"
#include "engine/base/error.h"
#include "engine/base/text.h"
#include "engine/checkpoint/files/digest.h"
#include "engine/checkpoint/files/strict_json.h"
#include "engine/checkpoint/files/tensor_name.h"

namespace strata {
namespace {

/// Format 2 has `began`; a reader without it would count the optimizer's steps wrongly. A save that
/// does not need `began` has format 1, so that earlier versions can read it.
constexpr int64_t kFormat = 2;
constexpr size_t kDeepest = 200;  // levels of JSON; the job inside may be nested

// The text of a manifest is {"digest":"0123...","manifest":{...}}.
constexpr std::string_view kBeforeDigest = "{\"digest\":\"";
constexpr std::string_view kBehindDigest = "\",\"manifest\":";
constexpr size_t kDigestEnd = kBeforeDigest.size() + kDigestDigits;

constexpr std::array<const char*, 3> kKinds = {"parameter", "buffer", "moment"};

// ---- Writing

Value ToValue(const SavedSlice& saved) {
  return Value::MakeMap({{"offset", Value::IntList(saved.slice.offset)},
                         {"shape", Value::IntList(saved.slice.shape)},
                         {"begin", saved.slice.begin},
                         {"count", saved.slice.count},
                         {"file", saved.file},
                         {"digest", saved.digest}});
}

Value ToValue(const SavedFile& file) {
  return Value::MakeMap(
      {{"name", file.name}, {"bytes", file.bytes}, {"header_digest", file.header_digest}});
}

Value ToValue(const SavedTensor& tensor);

template <class Item>
Value ListOf(const std::vector<Item>& items) {
  Value::List list;
  for (const Item& item : items) list.push_back(ToValue(item));
  return list;
}

Value ToValue(const SavedTensor& tensor) {
  return Value::MakeMap({{"name", tensor.name},
                         {"kind", TensorKindName(tensor.kind)},
                         {"dtype", DTypeName(tensor.spec.dtype)},
                         {"shape", Value::IntList(tensor.spec.shape)},
                         {"slices", ListOf(tensor.slices)}});
}

Value ToValue(const TrainingState& training) {
  Value value = Value::MakeMap({{"step", training.step}});
  if (training.skipped > 0) value.Set("skipped", training.skipped);
  if (!training.began.empty()) {
    value.Set("began", Value::MakeMap({training.began.begin(), training.began.end()}));
  }
  if (!training.loss_scale.is_null()) value.Set("loss_scale", training.loss_scale);
  if (!training.monitors.is_null()) value.Set("monitors", training.monitors);
  if (!training.plan.is_null()) value.Set("plan", training.plan);
  if (training.samples > 0) value.Set("samples", training.samples);
  if (!training.data.is_null()) value.Set("data", training.data);
  if (!training.base.empty()) value.Set("base", training.base);
  return value.Set("micro_batches", training.micro_batches)
      .Set("micro_batch_size", training.micro_batch_size)
      .Set("seed", training.seed)
      .Set("optimizer", training.optimizer)
      .Set("job_name", training.job_name)
      .Set("job_digest", training.job_digest)
      .Set("job", training.job);
}

// ---- Reading

std::string ReadDigest(const JsonObject& object, std::string_view key) {
  const std::string& digest = object.Text(key);
  const bool fits = digest.size() == kDigestDigits &&
                    digest.find_first_not_of("0123456789abcdef") == std::string::npos;
  if (!fits) object.Refuse(key, "a digest of 32 hex digits");
  return digest;
}

/// True for names such as rank-00000.safetensors. Other names could lead out of the folder.
bool IsFileName(std::string_view name) {
  constexpr std::string_view kBegin = "rank-", kEnd = ".safetensors";
  if (!name.starts_with(kBegin) || !name.ends_with(kEnd)) return false;
  if (name.size() <= kBegin.size() + kEnd.size()) return false;
  const std::string_view number =
      name.substr(kBegin.size(), name.size() - kBegin.size() - kEnd.size());
  return number.find_first_not_of("0123456789") == std::string_view::npos;
}

std::string ReadFileName(const JsonObject& object, std::string_view key) {
  if (!IsFileName(object.Text(key))) object.Refuse(key, "a name such as rank-00000.safetensors");
  return object.Text(key);
}

SavedSlice ReadSlice(const Value& value, const std::string& source) {
  const JsonObject object(value, source);
  SavedSlice saved;
  saved.slice = {object.Sizes("offset"), object.Sizes("shape"), object.Int("begin", 0),
                 object.Int("count", 0)};
  saved.file = ReadFileName(object, "file");
  saved.digest = ReadDigest(object, "digest");
  return saved;
}

TensorKind ReadKind(const JsonObject& object) {
  const auto found = std::ranges::find(kKinds, object.Text("kind"));
  if (found == kKinds.end()) object.Refuse("kind", "one of " + Join(kKinds, ", "));
  return static_cast<TensorKind>(found - kKinds.begin());
}

DType ReadDType(const JsonObject& object) {
  try {
    return ParseDType(object.Text("dtype"));
  } catch (const ConfigError&) {
    object.Refuse("dtype", "a dtype such as \"float32\"");
  }
}

SavedTensor ReadTensor(const Value& value, const std::string& source) {
  SavedTensor tensor;
  const JsonObject outer(value, source + ": a tensor");
  tensor.name = outer.Text("name");
  const std::string own = Str(source, ": tensor ", QuotedName(tensor.name));
  if (const std::string trouble = TroubleWithTensorName(tensor.name); !trouble.empty()) {
    throw WorldError(Str(own, ": no name for a tensor: ", trouble));
  }
  const JsonObject object(value, own);
  tensor.kind = ReadKind(object);
  tensor.spec = {object.Sizes("shape"), ReadDType(object)};
  if (tensor.spec.bytes() == std::numeric_limits<int64_t>::max()) {
    throw WorldError(own + ": its shape fits no machine");
  }
  for (const Value& slice : object.List("slices")) tensor.slices.push_back(ReadSlice(slice, own));
  return tensor;
}

SavedFile ReadFile(const Value& value, const std::string& source) {
  const JsonObject object(value, source + ": a file");
  return {ReadFileName(object, "name"), object.Int("bytes", 0),
          ReadDigest(object, "header_digest")};
}

SavePart ReadPart(const JsonObject& object, const std::string& source) {
  SavePart part;
  for (const Value& file : object.List("files")) part.files.push_back(ReadFile(file, source));
  for (const Value& tensor : object.List("tensors")) {
    part.tensors.push_back(ReadTensor(tensor, source));
  }
  return part;
}

/// `done` is the number of steps that the optimizer has done.
BeganSteps ReadBegan(const Value& value, int64_t done, const std::string& source) {
  const JsonObject object(value, source);
  BeganSteps began;
  for (const auto& [name, steps] : object.entries()) {
    began[name] = object.Int(name, 1);
    if (began[name] > done) object.Refuse(name, Str("at most the ", done, " steps done"));
  }
  return began;
}

TrainingState ReadTraining(const Value& value, const std::string& source) {
  const JsonObject object(value, source + ": training");
  TrainingState training;
  training.step = object.Int("step", 0);
  if (object.Has("skipped")) training.skipped = object.Int("skipped", 0);
  if (object.Has("began")) {
    training.began = ReadBegan(object.Object("began"), training.step - training.skipped,
                               source + ": training.began");
  }
  if (object.Has("loss_scale")) training.loss_scale = object.Object("loss_scale");
  if (object.Has("monitors")) training.monitors = object.Object("monitors");
  if (object.Has("plan")) training.plan = object.Object("plan");
  if (object.Has("samples")) training.samples = object.Int("samples", 0);
  if (object.Has("data")) training.data = object.Object("data");
  if (object.Has("base")) training.base = object.Text("base");
  training.micro_batches = object.Int("micro_batches", 0);
  training.micro_batch_size = object.Int("micro_batch_size", 0);
  training.seed = object.Int("seed", 0);
  training.optimizer = object.Text("optimizer");
  training.job_name = object.Text("job_name");
  training.job_digest = object.Text("job_digest");
  training.job = object.Object("job");
  return training;
}

/// Checks that the names of files and tensors are unique, that the slices of each tensor hold each
/// of its elements once, and that the files of the slices are listed.
void CheckConsistent(const Manifest& manifest, const std::string& source) {
  std::set<std::string_view> files, tensors;
  for (const SavedFile& file : manifest.files) {
    if (!files.insert(file.name).second) {
      throw WorldError(Str(source, ": the file ", file.name, " comes twice"));
    }
  }
  for (const SavedTensor& tensor : manifest.tensors) {
    const std::string own = Str(source, ": tensor ", QuotedName(tensor.name));
    if (!tensors.insert(tensor.name).second) throw WorldError(own + " comes twice");
    std::vector<Slice> slices;
    for (const SavedSlice& saved : tensor.slices) {
      if (!files.contains(saved.file)) {
        throw WorldError(Str(own, ": there is no file ", saved.file));
      }
      slices.push_back(saved.slice);
    }
    const std::string trouble = TroubleWithSlices(tensor.spec.shape, slices);
    if (!trouble.empty()) throw WorldError(Str(own, ": ", trouble));
  }
}

[[noreturn]] void ThrowDamaged(const std::string& source) {
  throw WorldError(source + ": the manifest is damaged: it is not what was saved");
}

}  // namespace

const char* TensorKindName(TensorKind kind) { return kKinds[static_cast<size_t>(kind)]; }

std::string StoredSliceName(const SavedTensor& tensor, const Slice& slice) {
  return slice.is_whole(tensor.spec.shape) ? tensor.name : tensor.name + slice.ToString();
}

std::string TroubleWith(const ForeignTensor& tensor) {
  return Str("tensor ", QuotedName(tensor.name), " is ", tensor.dtype, " ",
             FormatShape(tensor.shape), ", a dtype that Strata does not know");
}

const SavedTensor* Manifest::Find(std::string_view name) const {
  const auto found = std::ranges::find(tensors, name, &SavedTensor::name);
  return found == tensors.end() ? nullptr : &*found;
}

const SavedFile* Manifest::FindFile(std::string_view name) const {
  const auto found = std::ranges::find(files, name, &SavedFile::name);
  return found == files.end() ? nullptr : &*found;
}

std::string SavePart::ToJson() const {
  return Value::MakeMap({{"files", ListOf(files)}, {"tensors", ListOf(tensors)}}).ToJson();
}

SavePart SavePart::FromJson(std::string_view json) {
  const std::string source = "a rank's part of a save";
  const Value value = ParseStrictJson(json, kDeepest, source);
  return ReadPart(JsonObject(value, source), source);
}

void AddPart(Manifest& manifest, SavePart part) {
  std::map<std::string, size_t> places;
  for (size_t i = 0; i < manifest.tensors.size(); ++i) places[manifest.tensors[i].name] = i;
  for (SavedTensor& tensor : part.tensors) {
    const auto [place, is_new] = places.try_emplace(tensor.name, manifest.tensors.size());
    if (is_new) {
      manifest.tensors.push_back(std::move(tensor));
      continue;
    }
    SavedTensor& known = manifest.tensors[place->second];
    if (known.kind != tensor.kind || known.spec != tensor.spec) {
      throw WorldError(Str("tensor ", QuotedName(tensor.name), ": one rank saved ",
                           known.spec.ToString(), ", another one ", tensor.spec.ToString()));
    }
    std::ranges::move(tensor.slices, std::back_inserter(known.slices));
  }
  std::ranges::move(part.files, std::back_inserter(manifest.files));
}

std::string ManifestText(const Manifest& manifest) {
  const Value value = Value::MakeMap({{"format", manifest.training.began.empty() ? 1 : kFormat},
                                      {"sequence", manifest.sequence},
                                      {"training", ToValue(manifest.training)},
                                      {"files", ListOf(manifest.files)},
                                      {"tensors", ListOf(manifest.tensors)}});
  const std::string rest = Str(kBehindDigest, value.ToJson(), "}\n");
  return Str(kBeforeDigest, StrongDigest(rest), rest);
}

std::string ManifestDigest(std::string_view text) {
  return text.size() < kDigestEnd ? ""
                                  : std::string(text.substr(kBeforeDigest.size(), kDigestDigits));
}

Manifest ParseManifest(std::string_view text, const std::string& source) {
  if (text.size() < kDigestEnd || !text.starts_with(kBeforeDigest) ||
      ManifestDigest(text) != StrongDigest(text.substr(kDigestEnd))) {
    ThrowDamaged(source);
  }
  const Value value = ParseStrictJson(text, kDeepest, source);
  const JsonObject object(value["manifest"], source);
  if (object.Int("format", 1) > kFormat) {
    throw WorldError(Str(source, ": a later Strata made it: format ", object.Int("format", 1),
                         ", this one reads ", kFormat));
  }
  Manifest manifest;
  manifest.sequence = object.Int("sequence", 0);
  manifest.training = ReadTraining(object.Object("training"), source);
  SavePart all = ReadPart(object, source);
  manifest.files = std::move(all.files);
  manifest.tensors = std::move(all.tensors);
  CheckConsistent(manifest, source);
  return manifest;
}

}  // namespace strata
