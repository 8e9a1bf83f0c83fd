// A line of the table for each reader.
#include "tests/fuzz/readers.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <vector>

#include "engine/base/error.h"
#include "engine/base/fd.h"
#include "engine/base/text.h"
#include "engine/base/value.h"
#include "engine/checkpoint/files/digest.h"
#include "engine/checkpoint/files/pickle.h"
#include "engine/checkpoint/files/strict_json.h"
#include "engine/checkpoint/files/tensor_file.h"
#include "engine/checkpoint/manifest.h"
#include "engine/checkpoint/shards.h"
#include "engine/checkpoint/weights/low_rank_files.h"
#include "engine/comm/meeting/discovery.h"
#include "engine/cost/link_table.h"
#include "engine/cost/profile.h"
#include "engine/data/chat_template.h"
#include "engine/data/files/array_file.h"
#include "engine/data/files/csv_file.h"
#include "engine/data/files/image_file.h"
#include "engine/data/files/inflate.h"
#include "engine/data/open_dataset.h"
#include "engine/data/records/json_lines.h"
#include "engine/data/tokens/sentencepiece_model.h"
#include "engine/data/tokens/tokenizer.h"
#include "engine/forecast/saved_plan.h"
#include "engine/job/data_source.h"
#include "engine/job/flags/config_file.h"
#include "engine/runtime/watch/flight.h"
#include "engine/schedule/program.h"
#include "launcher/place/hosts.h"
#include "launcher/process/channel.h"
#include "launcher/process/pipes.h"
#include "launcher/report/line_log.h"
#include "launcher/report/part_file.h"
#include "tests/fuzz/strange_wire.h"

namespace strata::fuzz {
namespace {

/// A file in memory, for readers that take a path.
class MemoryFile {
 public:
  explicit MemoryFile(std::string_view bytes) : fd_(::memfd_create("fuzz", MFD_CLOEXEC)) {
    WriteAll(fd_.get(), bytes, "a file in memory");
  }
  std::string path() const { return PathOfDescriptor(fd_.get()); }

 private:
  Fd fd_;
};

/// A file's name in an empty folder of this process.
std::string ScratchFile(const std::string& name) {
  static const struct Folder {
    std::string path = (std::filesystem::temp_directory_path() / "strata-fuzz-XXXXXX").string();
    Folder() {
      if (!::mkdtemp(path.data())) ThrowErrno("cannot make " + path);
    }
    ~Folder() {
      std::error_code error;
      std::filesystem::remove_all(path, error);
    }
  } folder;
  return Str(folder.path, "/", name);
}

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

void ReadLinkTable(std::string_view bytes) {
  const LinkTable table = ReadLinks(Value::FromJson(bytes), "links.json");
  LinksText(table);
  if (!(ReadLinks(ToValue(table), "again") == table)) std::abort();
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
  WriteAll(pipe.write.get(), bytes.substr(0, kMost), "a pipe");
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

/// Without degrees, and with those of a command line.
void ReadConfig(std::string_view bytes) {
  const std::string text(bytes);
  ConfigOverrides(text, "config.json", Value::FromJson(R"({"parallel": {"data": 2}})"));
  ConfigOverrides(text, "config.json", {});
}

void ReadCosts(std::string_view bytes) {
  Job job;
  job.layers.resize(2);
  job.layers[0].type = "Linear";
  job.layers[1].type = "ReLU";
  MeasureTask task;
  task.job = &job;
  task.batch = {32, 4, 8};
  task.device = "cpu";
  ProfileValue(ReadProfile(Value::FromJson(bytes), task, "costs.json"), task).ToJson();
}

/// Which lines come again in a training that goes on behind step 3; then the next one is written.
void ReadLog(std::string_view bytes) {
  const MemoryFile memory(bytes);
  const auto comes_again = [](std::string_view line) {
    return launcher::ComesAgain(Value::FromJson(line), {.done = 3, .owes_evaluation = true});
  };
  launcher::LineLog log("the log", memory.path(), true);
  log.CutFrom(comes_again);
  log.Write(R"({"step": 2})");
  log.CutFrom([&](std::string_view line) {
    if (comes_again(line)) std::abort();  // what came again is gone
    return false;
  });
}

/// The lines beside 64 bytes of a file that a later run goes on with.
void ReadPartLog(std::string_view bytes) {
  const std::string path = ScratchFile("a.csv");
  WriteFile(path + ".part", std::string(64, 'x'));
  WriteFile(path + ".part.log", bytes);
  launcher::PartFile(path, "digits", 0).state();
}

void ReadIndex(std::string_view bytes) {
  for (const auto& [file, tensors] : ParseIndex(bytes, "model.safetensors.index.json")) {
    if (file.empty() || file.find('/') != std::string::npos) std::abort();
  }
}

/// Texts, and texts of classes.
void ReadJsonLines(std::string_view bytes) {
  const MemoryFile memory(bytes);
  for (const Value& target : {Value(), Value("label")}) {
    Value::Map options = {{"path", memory.path()}, {"length", 5}};
    if (!target.is_null()) options.emplace_back("target", target);
    OpenDataset({"jsonl", MakeDataSource("jsonl", {}, options, "net.lua:9"), {}, ""}, {});
  }
}

void ReadChat(std::string_view bytes) {
  const MemoryFile memory(bytes);
  data::ForEachJsonLine(memory.path(), [](const Value& line, const std::string& where) {
    const std::vector<data::ChatMessage> messages = data::MessagesOf(line, where);
    for (const char* form : {"llama3", "mistral"}) {  // mistral refuses some, so it is the last
      data::PartsOf(*std::ranges::find(data::ChatTemplates(), form, &data::ChatTemplate::name),
                    messages, where);
    }
  });
}

/// Texts and their classes.
void ReadRecords(const char* source, const char* text, std::string_view bytes) {
  const MemoryFile memory(bytes);
  const Value::Map options = {
      {"path", memory.path()}, {"length", 5}, {"text", text}, {"target", "word"}};
  OpenDataset({source, MakeDataSource(source, {}, options, "net.lua:9"), {}, ""}, {});
}

void ReadGzip(std::string_view bytes) { data::InflateGzip(bytes, "a.gz", 1 << 20); }

void ReadAdapterConfig(std::string_view bytes) {
  if (ParsePeftConfig(bytes, "adapter_config.json").rank < 1) std::abort();
}

constexpr Reader kReaders[] = {
    {"adapter_config", ReadAdapterConfig},
    {"arrow", [](std::string_view bytes) { ReadRecords("arrow", "text", bytes); }},
    {"arrays", ReadArrays},
    {"chat", ReadChat},
    {"config", ReadConfig},
    {"control", ReadMessages},
    {"costs", ReadCosts},
    {"counts", [](std::string_view bytes) { ExpandCounts(bytes); }},
    {"csv", ReadCsv},
    {"flight", ReadFlight},
    {"gzip", ReadGzip},
    {"host_list", [](std::string_view bytes) { ExpandHostList(bytes); }},
    {"host_spec", ReadSpec},
    {"hosts", [](std::string_view bytes) { launcher::ParseHosts(bytes, "hosts"); }},
    {"image", ReadImage},
    {"index", ReadIndex},
    {"json", ReadJson},
    {"jsonl", ReadJsonLines},
    {"links", ReadLinkTable},
    {"log", ReadLog},
    {"manifest", ReadManifest},
    {"parquet", [](std::string_view bytes) { ReadRecords("parquet", "text", bytes); }},
    {"part", ReadPart},
    {"part_log", ReadPartLog},
    {"pickle", ReadAsPickle},
    {"plan", ReadPlan},
    {"schedule", ReadSchedule},
    {"sentencepiece", [](std::string_view bytes) { data::ReadSentencePieceModel(bytes); }},
    {"tar", [](std::string_view bytes) { ReadRecords("webdataset", "txt", bytes); }},
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
