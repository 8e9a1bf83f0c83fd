// A line of the table for each reader.
#include "tests/fuzz/readers.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <vector>

#include "engine/base/error.h"
#include "engine/base/fd.h"
#include "engine/base/text.h"
#include "engine/base/value/value.h"
#include "engine/checkpoint/files/digest.h"
#include "engine/checkpoint/files/strict_json.h"
#include "engine/checkpoint/files/tensor_file.h"
#include "engine/checkpoint/files/torch/pickle.h"
#include "engine/checkpoint/saves/manifest.h"
#include "engine/comm/meeting/discovery.h"
#include "engine/data/files/array_file.h"
#include "engine/data/files/csv_file.h"
#include "engine/data/files/image_file.h"
#include "engine/data/files/inflate.h"
#include "engine/data/tokens/sentencepiece_model.h"
#include "engine/data/tokens/tokenizer.h"
#include "engine/predict/saved_plan.h"
#include "engine/runtime/watch/flight.h"
#include "engine/schedule/program/program.h"
#include "launcher/place/hosts.h"
#include "launcher/process/streams/channel.h"
#include "launcher/process/streams/pipes.h"
#include "tests/fuzz/strange_wire.h"

namespace strata::fuzz {
namespace {

/// A file in memory, for readers that take a path.
class MemoryFile {
 public:
  explicit MemoryFile(std::string_view bytes) : fd_(::memfd_create("fuzz", MFD_CLOEXEC)) {
    WriteAll(fd_.get(), std::string(bytes), "a file in memory");
  }
  std::string path() const { return PathOfDescriptor(fd_.get()); }

 private:
  Fd fd_;
};

void ReadTensors(std::string_view bytes) {
  const MemoryFile memory(bytes);
  const auto file = TensorFile::Open(memory.path());
  std::string content;
  for (const StoredTensor& tensor : file->tensors()) {
    // A tensor with strides may be larger than its file: zeros of any shape are one element.
    content.resize(static_cast<size_t>(std::min<int64_t>(tensor.bytes, 1 << 16)));
    if (tensor.bytes <= (1 << 20)) {
      file->Read(tensor, 0, content.data(), static_cast<int64_t>(content.size()));
    }
  }
}

/// The digest in front is made to fit: what lies behind it is what may be wrong.
void ReadManifest(std::string_view bytes) {
  constexpr std::string_view kBegin = "{\"digest\":\"";
  constexpr size_t kDigits = 32;
  if (bytes.starts_with(kBegin))
    bytes.remove_prefix(std::min(bytes.size(), kBegin.size() + kDigits));
  ManifestText(ParseManifest(Str(kBegin, StrongDigest(bytes), bytes), "manifest.json"));
}

void ReadPart(std::string_view bytes) { SavePart::FromJson(bytes).ToJson(); }

void ReadAsPickle(std::string_view bytes) { ReadPickle(bytes, "data.pkl"); }

void ReadJson(std::string_view bytes) {
  Value::FromJson(bytes).ToJson();
  ParseStrictJson(bytes, 20, "a.json");
}

void ReadSpec(std::string_view bytes) {
  const std::vector<launcher::Host> hosts = {{"a", {0, 1}}, {"b", {0}}, {"c-1", {0, 1, 2, 3}}};
  launcher::Include(hosts, std::string(bytes));
  launcher::Exclude(hosts, std::string(bytes));
}

void ReadSchedule(std::string_view bytes) {
  const schedule::Program program = schedule::ParseProgram(bytes);
  schedule::ToCsv(program);
  schedule::ToGrid(program);
}

void ReadPlan(std::string_view bytes) {
  const SavedPlan plan = ParseSavedPlan(bytes);
  SavedPlanText(plan);
  DifferenceText(plan, ParseSavedPlan(ToText(plan)));
}

void ReadFlight(std::string_view bytes) {
  if (IsFlightRecord(bytes))
    FlightText(Value::FromJson(bytes), 100);
  else
    throw ConfigError("no flight record");
}

/// As the launcher hears its processes.
void ReadMessages(std::string_view bytes) {
  launcher::Pipe pipe = launcher::MakePipe();
  constexpr size_t kMost = 60'000;  // what a pipe takes
  WriteAll(pipe.write.get(), std::string(bytes.substr(0, kMost)), "a pipe");
  pipe.write.Close();
  launcher::Channel channel(std::move(pipe.read));
  std::vector<launcher::Message> messages;
  while (channel.Receive(messages)) continue;
  for (const launcher::Message& message : messages) message.body.ToJson();
}

/// With the text of a file as what it is asked to encode.
void ReadAsTokenizer(std::string_view bytes) {
  const MemoryFile memory(bytes);
  const auto tokenizer = data::ReadTokenizer(memory.path());
  data::TokenList tokens;
  constexpr size_t kText = 200;
  tokenizer->Encode(bytes.substr(0, kText), tokens);
  tokenizer->Encode("Hello  world\xc3\xa9 12\n", tokens);
  for (int32_t token : tokens) tokenizer->Decode(token);
  for (int64_t token :
       {int64_t{-1}, int64_t{0}, tokenizer->vocabulary(), tokenizer->end_of_text()}) {
    tokenizer->Decode(static_cast<int32_t>(token));
  }
}

void ReadArrays(std::string_view bytes) {
  const MemoryFile memory(bytes);
  for (const data::Array& array : data::ReadArrays(memory.path())) {
    const auto size = static_cast<size_t>(array.spec.bytes());
    volatile std::byte last = size > 0 ? array.bytes[size - 1] : std::byte{};
    (void)last;
  }
}

void ReadCsv(std::string_view bytes) {
  data::CsvReader reader(bytes, ',', "a.csv");
  std::vector<data::CsvCell> row;
  while (reader.Next(row)) reader.Where();
}

void ReadImage(std::string_view bytes) {
  std::vector<float> planes(3 * 8 * 8);
  for (const bool crop : {false, true}) {
    data::ResizeToPlanes(data::DecodeImage(bytes, 3, crop ? 8 : 0, "a.png"), 8, 8, crop,
                         planes.data());
  }
}

void ReadGzip(std::string_view bytes) { data::InflateGzip(bytes, "a.gz", 1 << 20); }

constexpr Reader kReaders[] = {
    {"arrays", ReadArrays},
    {"control", ReadMessages},
    {"counts", [](std::string_view bytes) { ExpandCounts(bytes); }},
    {"csv", ReadCsv},
    {"flight", ReadFlight},
    {"gzip", ReadGzip},
    {"host_list", [](std::string_view bytes) { ExpandHostList(bytes); }},
    {"host_spec", ReadSpec},
    {"hosts", [](std::string_view bytes) { launcher::ParseHosts(bytes, "hosts"); }},
    {"image", ReadImage},
    {"json", ReadJson},
    {"manifest", ReadManifest},
    {"part", ReadPart},
    {"pickle", ReadAsPickle},
    {"plan", ReadPlan},
    {"schedule", ReadSchedule},
    {"sentencepiece", [](std::string_view bytes) { data::ReadSentencePieceModel(bytes); }},
    {"tensors", ReadTensors},
    {"tokenizer", ReadAsTokenizer},
    {"wire_guest", MeetStrangeGuest},
    {"wire_host", MeetStrangeHost},
};

}  // namespace

std::span<const Reader> Readers() { return kReaders; }

const Reader* FindReader(std::string_view name) {
  const auto found = std::ranges::find(kReaders, name, &Reader::name);
  return found == std::end(kReaders) ? nullptr : found;
}

bool Takes(const Reader& reader, std::string_view bytes, std::string* why) {
  try {
    reader.read(bytes);
    return true;
  } catch (const Error& error) {
    if (why) *why = error.what();
    return false;
  }
}

}  // namespace strata::fuzz
