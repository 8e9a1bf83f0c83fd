// TensorBoard's event files: TFRecords of Event messages, written byte by byte.
//
//   record   length (8 bytes), masked CRC32C of the length, the message, masked CRC32C of it
//   Event    1 wall_time (double)  2 step  3 file_version  5 Summary  7 SessionLog
//   Summary  1 Value, repeated: 1 tag and one of 2 simple_value (float), 5 HistogramProto, or
//            8 TensorProto with 9 SummaryMetadata, for texts
//   HistogramProto   1 min  2 max  3 num  4 sum  5 sum_squares  6 bucket_limit, packed
//                    7 bucket, packed; all double
//   TensorProto      1 dtype (7: texts)  2 its shape: 2 a dim: 1 size  8 text, repeated
//   SummaryMetadata  1 plugin: 1 its name
//
// Sources: tensorflow/core/lib/io/record_writer.cc, tensorboard/compat/proto/event.proto,
// summary.proto, histogram.proto, tensor.proto.
#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <bit>
#include <chrono>
#include <cstring>
#include <filesystem>

#include "engine/base/error.h"
#include "engine/base/fd.h"
#include "engine/base/machine/identity.h"
#include "engine/base/text.h"
#include "engine/runtime/records.h"
#include "launcher/report/step_files.h"

namespace strata::launcher {
namespace {

static_assert(std::endian::native == std::endian::little, "numbers are written as they are");

constexpr std::array<uint32_t, 256> MakeCrcTable() {
  constexpr uint32_t kCastagnoli = 0x82f63b78;  // reflected
  std::array<uint32_t, 256> table = {};
  for (uint32_t i = 0; i < table.size(); ++i) {
    uint32_t crc = i;
    for (int bit = 0; bit < 8; ++bit) crc = crc >> 1 ^ (crc & 1 ? kCastagnoli : 0);
    table[i] = crc;
  }
  return table;
}

uint32_t MaskedCrc32c(std::string_view bytes) {
  static constexpr std::array<uint32_t, 256> kTable = MakeCrcTable();
  uint32_t crc = ~0u;
  for (const char byte : bytes)
    crc = crc >> 8 ^ kTable[(crc ^ static_cast<unsigned char>(byte)) & 0xff];
  return std::rotr(~crc, 15) + 0xa282ead8;
}

template <class T>
std::string BytesOf(T number) {
  std::string bytes(sizeof(number), '\0');
  std::memcpy(bytes.data(), &number, sizeof(number));
  return bytes;
}

std::string Varint(uint64_t number) {
  std::string bytes;
  for (; number >= 0x80; number >>= 7) bytes.push_back(static_cast<char>(number | 0x80));
  return bytes + static_cast<char>(number);
}

// Encodes the fields of a message, by protobuf's wire types.
std::string Key(int field, int type) { return Varint(static_cast<uint64_t>(field << 3 | type)); }
std::string Number(int field, int64_t value) {
  return Key(field, 0) + Varint(static_cast<uint64_t>(value));
}
std::string Double(int field, double value) { return Key(field, 1) + BytesOf(value); }
std::string Bytes(int field, const std::string& value) {
  return Key(field, 2) + Varint(value.size()) + value;
}
std::string Float(int field, float value) { return Key(field, 5) + BytesOf(value); }

std::string Doubles(int field, const Value& list) {
  std::string packed;
  for (const Value& number : list.as_list()) packed += BytesOf(number.as_double());
  return Bytes(field, packed);
}

std::string Record(const std::string& message) {
  const std::string length = BytesOf(static_cast<uint64_t>(message.size()));
  return length + BytesOf(MaskedCrc32c(length)) + message + BytesOf(MaskedCrc32c(message));
}

/// The names of a record's entries in TensorBoard, where a slash makes groups.
struct Scalar {
  const char* entry;
  const char* tag;
};
constexpr Scalar kScalars[] = {{"loss", "loss"},
                               {"grad_norm", "grad_norm"},
                               {"lr", "lr"},
                               {"samples_per_second", "speed/samples_per_second"},
                               {"seconds", "speed/step_seconds"},
                               {"data_seconds", "speed/step_data_seconds"},
                               {"bubble", "speed/bubble"},
                               {"bubble_measured", "speed/bubble_measured"},
                               {"peak_memory", "peak_memory"},
                               {"skipped", "skipped"},
                               {"loss_scale", "loss_scale"},
                               {"test_loss", "test/loss"},
                               {"accuracy", "test/accuracy"}};
constexpr Scalar kGroups[] = {
    {"parts", "parts/"}, {"test_parts", "test/parts/"}, {"metrics", "test/"}};

class TensorboardFile : public StepFile {
 public:
  explicit TensorboardFile(std::string folder) : folder_(std::move(folder)) {}

  void OnBegin(const Begin& begin) override {
    Open();
    Write(Bytes(3, "brain.Event:2"));
    // SessionLog.START: readers discard earlier values of steps from this one on.
    Write(Number(2, begin.from.done) + Bytes(7, Number(1, 1)));
  }

  void Add(const Value& record) override {
    std::string summary;
    const auto add = [&](const std::string& tag, const Value& value) {
      const auto number = static_cast<float>(NumberOf(value));
      summary += Bytes(1, Bytes(1, tag) + Float(2, number));
    };
    for (const auto& [entry, tag] : kScalars) {
      if (const Value* value = record.Find(entry)) add(tag, *value);
    }
    for (const auto& [entry, tag] : kGroups) {
      const Value* values = record.Find(entry);
      if (!values) continue;
      for (const auto& [name, value] : values->as_map()) {
        if (!value.is_list()) add(tag + name, value);
      }
    }
    Write(Number(2, record["step"].as_int()) + Bytes(5, summary));
  }

  /// Adds texts; "samples/1" is the first prompt's.
  void AddTexts(const Value& record) override {
    const std::string plugin = Bytes(9, Bytes(1, Bytes(1, "text")));
    const std::string head = Number(1, kTexts) + Bytes(2, Bytes(2, Number(1, 1)));
    std::string summary;
    int number = 0;
    for (const Value& text : record["texts"].as_list()) {
      const std::string tensor = Bytes(8, head + Bytes(8, text.as_string()));
      summary += Bytes(1, Bytes(1, Str("samples/", ++number)) + tensor + plugin);
    }
    Write(Number(2, record["step"].as_int()) + Bytes(5, summary));
  }

  /// Adds histograms; "gradients/0.weight" is that of the parameter 0.weight.
  void AddHistograms(const Value& record) override {
    std::string summary;
    for (const auto& [name, histogram] : record["histograms"].as_map()) {
      std::string proto;
      int field = 0;
      for (const char* entry : {"min", "max", "num", "sum", "sum_squares"}) {
        proto += Double(++field, histogram[entry].as_double());
      }
      proto += Doubles(6, histogram["limits"]) + Doubles(7, histogram["counts"]);
      summary += Bytes(1, Bytes(1, "gradients/" + name) + Bytes(5, proto));
    }
    Write(Number(2, record["step"].as_int()) + Bytes(5, summary));
  }

 private:
  static constexpr int kTexts = 7;  // DT_STRING

  static double Now() {
    return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch())
        .count();
  }

  /// Opens a new file for this run; readers sort a folder's files by name.
  void Open() {
    std::error_code error;
    std::filesystem::create_directories(folder_, error);
    if (error) throw WorldError(Str("--tensorboard=", folder_, ": ", error.message()));
    path_ = Str(folder_, "/events.out.tfevents.", static_cast<int64_t>(Now()), ".", HostName(), ".",
                ::getpid(), ".", runs_++);
    file_ = Fd(::open(path_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_APPEND | O_CLOEXEC, 0666));
    if (!file_.is_open()) ThrowErrno("cannot write to " + path_);
  }

  void Write(const std::string& fields) {
    WriteAll(file_.get(), Record(Double(1, Now()) + fields), path_);
  }

  const std::string folder_;
  std::string path_;
  Fd file_;
  int runs_ = 0;
};

}  // namespace

std::unique_ptr<StepFile> MakeTensorboardFile(const std::string& folder) {
  return std::make_unique<TensorboardFile>(folder);
}

}  // namespace strata::launcher
