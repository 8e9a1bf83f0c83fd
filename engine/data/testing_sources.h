// Declarations of every source and step, over small files, for tests that apply to all of them.
#pragma once

#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <string>
#include <vector>

#include "engine/base/text.h"
#include "engine/data/chat_template.h"
#include "engine/data/data_script.h"
#include "engine/data/files/array_file.h"
#include "engine/data/open_dataset.h"
#include "engine/job/data_source.h"

namespace strata {

/// Implements script functions without Lua: get and batch return (i, i + 1) -> i % 3, map writes
/// the seed into the last byte of the input, filter keeps even classes.
class FakeDataScript : public DataScript {
 public:
  PlainSample Get(const FunctionRef&, int64_t index, uint64_t) override {
    return Of({&index, 1}, false);
  }
  PlainSample GetBatch(const FunctionRef&, std::span<const int64_t> indices, uint64_t) override {
    return Of(indices, true);
  }
  PlainSample Map(const FunctionRef&, const PlainSample& sample, uint64_t seed) override {
    PlainSample made = sample;
    made.input.bytes.back() = static_cast<char>(seed);
    return made;
  }
  bool Keeps(const FunctionRef&, const PlainSample& sample, uint64_t) override {
    return sample.target.bytes[0] % 2 == 0;
  }

 private:
  static PlainSample Of(std::span<const int64_t> indices, bool is_batch) {
    const auto shape = [&](std::vector<int64_t> of_one) {
      if (is_batch) of_one.insert(of_one.begin(), static_cast<int64_t>(indices.size()));
      return of_one;
    };
    PlainSample sample;
    sample.input.specs = {{shape({2}), DType::kInt64}};
    sample.target.specs = {{shape({}), DType::kInt64}};
    const auto add = [](PlainTensors& half, int64_t number) {
      half.bytes.append(reinterpret_cast<const char*>(&number), sizeof(number));
    };
    for (const int64_t i : indices) {
      add(sample.input, i);
      add(sample.input, i + 1);
      add(sample.target, i % 3);
    }
    return sample;
  }
};

inline FunctionRef FakeFunction() { return {1, "net.lua:5", "f"}; }

/// The path of a file that make_data.py wrote.
inline std::string TestData(const std::string& name) { return "engine/data/testdata/" + name; }

/// The content of a file.
inline std::string Content(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

/// The content of gpt2.tokenizer.json with the special tokens of all published chat templates.
inline std::string ChatTokenizer() {
  std::string file = Content(TestData("gpt2.tokenizer.json"));
  const std::string added = "\"added_tokens\":[";
  int id = 600;
  for (const data::ChatTemplate& form : data::ChatTemplates()) {
    for (const std::string& special : data::SpecialsOf(form)) {
      if (file.find("\"" + special + "\"") != file.npos) continue;
      file.insert(file.find(added) + added.size(),
                  Str(R"({"id":)", id++, R"(,"content":")", special,
                      R"(","normalized":false,"special":true},)"));
    }
  }
  return file;
}

/// Declarations of every source and step, with options and without, over files in `folder`.
inline std::vector<Value> EverySource(const std::filesystem::path& folder) {
  namespace fs = std::filesystem;
  const auto write = [&](const std::string& name, const std::string& content) {
    fs::create_directories((folder / name).parent_path());
    std::ofstream(folder / name, std::ios::binary) << content;
    return (folder / name).string();
  };
  const auto make = [](const char* name, const Value::Map& named) {
    return MakeDataSource(name, {}, named, "net.lua:9");
  };
  const auto step = [](const char* name, const Value& of, const Value::Map& named) {
    return MakeDataStep(name, of, {}, named, "net.lua:9");
  };
  std::string bytes;
  for (int i = 0; i < 400; ++i) bytes += static_cast<char>(i * 37);
  const std::string text = write("text", bytes);
  for (const char* place : {"images/cat/1.png", "images/cat/2.jpg", "images/dog/1.PNG"}) {
    fs::create_directories((folder / place).parent_path());
    const bool is_jpeg = std::string(place).ends_with("jpg");
    fs::copy_file(TestData(is_jpeg ? "picture.jpg" : "picture.png"), folder / place,
                  fs::copy_options::overwrite_existing);
  }
  std::string csv = "age,city,price\n", json, chat;
  for (int i = 0; i < 9; ++i) {
    csv += Str(20 + i, ",", i % 2 ? "Rome" : "\"Paris, F\"", ",", 1.5 * i, "\n");
    json += Str("{\"text\": \"line ", i, " of some text\", \"label\": ", i % 2, "}\n");
    chat += Str(R"({"messages": [{"role": "user", "content": "fox)", i,
                R"("}, {"role": "assistant", "content": "lazy"}]})", "\n");
  }
  const std::string table = write("table.csv", csv), lines = write("lines.jsonl", json);
  const std::string chats = write("chats.jsonl", chat);
  const std::string chat_tokenizer = write("chat.tokenizer.json", ChatTokenizer());
  const std::string text_lines = write("text.jsonl", "{\"text\": \"no label\"}\n");
  std::vector<float> numbers(5 * 6);
  for (size_t i = 0; i < numbers.size(); ++i) numbers[i] = static_cast<float>(i) / 7;
  std::vector<int32_t> labels = {0, 2, 1, 1, 0};
  const data::Array x = {"x",
                         {{5, 1, 2, 3}, DType::kFloat32},
                         reinterpret_cast<const std::byte*>(numbers.data()),
                         nullptr};
  const data::Array y = {
      "y", {{5}, DType::kInt32}, reinterpret_cast<const std::byte*>(labels.data()), nullptr};
  data::Array bare_x = x, bare_y = y;
  bare_x.name = bare_y.name = "";
  const std::string npy = (folder / "x.npy").string(), npy_y = (folder / "y.npy").string();
  const std::string tensors = (folder / "xy.safetensors").string();
  data::WriteArrays(npy, {bare_x});
  data::WriteArrays(npy_y, {bare_y});
  data::WriteArrays(tensors, {x, y});
  const std::string idx_images =
      write("images.idx", std::string("\0\0\10\3\0\0\0\3\0\0\0\2\0\0\0\2", 16) + "abcdefghijkl");
  const std::string idx_labels = write("labels.idx", std::string("\0\0\10\1\0\0\0\3\2\0\1", 11));
  const Value images = make("image_folder", {{"path", (folder / "images").string()}, {"size", 24}});
  const Value own = make("dataset", {{"length", 7}, {"get", FakeFunction()}});
  const Value floats = make("npy", {{"input", npy}, {"target", npy_y}});
  const Value idx = make("idx", {{"images", idx_images}, {"labels", idx_labels}});
  return {
      make("text", {{"path", text}, {"length", 8}}),
      make("images", {{"shape", Value::IntList({2, 3, 5})}, {"classes", 4}, {"samples", 9}}),
      make("tokens", {{"vocabulary", 50}, {"length", 6}, {"samples", 5}}),
      images,
      make("image_folder", {{"path", (folder / "images").string()},
                            {"size", 16},
                            {"channels", 1},
                            {"broken", "skip"}}),
      make("csv", {{"path", table}}),
      make("csv", {{"path", table}, {"target", "city"}, {"normalise", true}, {"like", table}}),
      make("csv", {{"path", table}, {"targets", false}, {"columns", Value::List{"age"}}}),
      make("image_folder",
           {{"path", (folder / "images").string()}, {"size", 9}, {"targets", false}}),
      make("npy", {{"input", npy}, {"targets", false}}),
      floats,
      make("npy", {{"input", npy}}),
      make("npz", {{"path", TestData("stored.npz")}, {"target", "y"}}),
      make("npz", {{"path", TestData("deflated.npz")}, {"target", "y"}}),
      make("safetensors", {{"path", tensors}, {"target", "y"}}),
      idx,
      make("idx", {{"images", idx_images}, {"labels", TestData("labels.idx.gz")}}),
      make("token_file", {{"path", text}, {"length", 9}}),
      make("token_file", {{"path", text}, {"length", 9}, {"dtype", "uint8"}, {"vocabulary", 256}}),
      make("jsonl", {{"path", lines}, {"length", 5}}),
      make("jsonl", {{"path", lines}, {"length", 30}, {"target", "label"}}),
      make("jsonl", {{"path", text_lines},
                     {"length", 30},
                     {"target", "label"},
                     {"like", lines},
                     {"targets", false}}),
      make("parquet", {{"path", TestData("records/people.parquet")}, {"length", 6}}),
      make("arrow", {{"path", TestData("records/people.stream.arrow")},
                     {"image", "image"},
                     {"size", 9},
                     {"target", "word"}}),
      make("webdataset", {{"path", TestData("records/people.tar")},
                          {"columns", Value::List{"point"}},
                          {"target", "cls"}}),
      make(
          "chat",
          {{"path", chats}, {"template", "chatml"}, {"tokenizer", chat_tokenizer}, {"length", 20}}),
      own,
      make("dataset", {{"length", 7}, {"batch", FakeFunction()}}),
      step("part", own, {{"begin", 2}, {"end", 6}, {"seed", 3}}),
      step("take", own, {{"count", 4}}),
      step("concat", Value::List{own, own}, {}),
      step("shuffled", own, {{"seed", 5}}),
      step("cache", own, {}),
      step("map", own, {{"f", FakeFunction()}}),
      step("filter", own, {{"f", FakeFunction()}}),
      step("pack", make("jsonl", {{"path", lines}}), {{"length", 40}}),
      step("resize", images, {{"size", Value::IntList({7, 9})}}),
      step("random_crop", images, {{"size", 20}, {"padding", 3}}),
      step("flip", images, {}),
      step("jitter", images, {{"brightness", 0.4}, {"contrast", 0.3}}),
      step("normalise", images, {{"mean", Value::List{0.5, 0.4, 0.3}}, {"std", Value::List{0.25}}}),
      step("to_float", own, {}),
      step("one_hot", idx, {}),
      step("mix_up", step("one_hot", idx, {}), {}),
  };
}

/// The spec of a declaration with its facts, as a job has it.
inline DataSpec SpecOf(const Value& declaration, const DatasetContext& context) {
  return ParseDataSpec(declaration, nullptr, "net.lua:1",
                       [&](const DataSpec& spec) { return OpenDataset(spec, context)->facts(); });
}

/// Input and target of a sample, one after the other.
inline std::vector<std::byte> BytesOfSample(const Dataset& dataset, Sample sample) {
  std::vector<std::byte> bytes(static_cast<size_t>(dataset.input_bytes() + dataset.target_bytes()));
  dataset.Read(sample, bytes.data(), bytes.data() + dataset.input_bytes());
  return bytes;
}

}  // namespace strata
