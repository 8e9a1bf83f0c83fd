#include "engine/runtime/texts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "engine/base/testing.h"
#include "engine/data/testing.h"
#include "engine/data/testing_sources.h"
#include "engine/data/tokens/utf8.h"
#include "engine/runtime/testing_job.h"
#include "engine/search/plan_job.h"

namespace strata {
namespace {

using ::testing::ElementsAre;
using testing::FakeScript;
using ::testing::HasSubstr;
using testing::Make;
using testing::MapOf;

/// A language model of `words` tokens, on data of the given source.
Job LanguageJob(int64_t words, const Value& data, int64_t length = 12) {
  return testing::MakeJob(
      {Make("Embedding", {words, 8}), Make("Linear", {8, words})}, Make("CrossEntropyLoss"),
      {{"input", MapOf({{"shape", Value::IntList({length})}, {"dtype", "int64"}})},
       {"data", MapOf({{"train", data}})}});
}

Value BytesOf(const std::string& name) {
  const std::string path = ::testing::TempDir() + name;
  std::ofstream(path) << std::string(1000, 'x');
  return MakeDataSource("text", {}, {{"path", path}, {"length", 12}}, "net.lua:9");
}

Value Numbered(int64_t length = 12) {
  return MakeDataSource("tokens", {}, {{"vocabulary", 300}, {"length", length}}, "net.lua:9");
}

Value TextOptions(Value::Map named = {}) {
  return Canonicalize(TextFields(), CallOf(MapOf(std::move(named))));
}

std::string ErrorWith(const Job& job, std::vector<std::string> prompts, Value::Map named = {}) {
  FakeScript script;
  const Plan plan = PlanJob(job, {}, &script);
  return ErrorOf([&] { Texts(job, plan, TextOptions(std::move(named)), std::move(prompts)); });
}

TEST(TextsTest, PromptsBecomeTokensOfTheDatasTokenizer) {
  Job job = LanguageJob(256, BytesOf("a.txt"));
  FakeScript script;
  const Plan plan = PlanJob(job, {}, &script);
  // Texts looks at the source that a step like `take` reads from.
  job.train_data = {"take", MapOf({{"of", BytesOf("a.txt")}, {"count", 5}}), {}, "net.lua:9"};
  const Texts texts(job, plan, TextOptions({{"tokens", 7}, {"temperature", 0}}),
                    {"Az", "\xc3\xa9"});
  EXPECT_THAT(texts.request().prompts, ElementsAre(ElementsAre(65, 122), ElementsAre(0xc3, 0xa9)));
  EXPECT_EQ(texts.request().tokens, 7);
  EXPECT_EQ(texts.request().temperature, 0);
  EXPECT_EQ(texts.request().top_k, 40);
  EXPECT_EQ(texts.request().vocabulary, 256);
  EXPECT_EQ(texts.request().end, -1);
}

/// Writes a tokenizer.json whose tokens are the bytes, and token 256, which begins each text.
std::string FileWithStart() {
  Value vocabulary = Value::MakeMap();
  int next = 256;
  for (int byte = 0; byte < 256; ++byte) {  // as GPT-2's bytes_to_unicode
    const bool is_itself =
        (byte >= 33 && byte <= 126) || (byte >= 161 && byte <= 172) || byte >= 174;
    std::string letter;
    data::AppendUtf8(static_cast<char32_t>(is_itself ? byte : next++), letter);
    vocabulary.Set(letter, byte);
  }
  Value file = Value::FromJson(R"({
    "added_tokens": [{"id": 256, "content": "<s>"}],
    "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false},
    "post_processor": {"type": "TemplateProcessing",
      "single": [{"SpecialToken": {"id": "<s>"}}, {"Sequence": {"id": "A"}}],
      "special_tokens": {"<s>": {"ids": [256]}}},
    "model": {"type": "BPE", "merges": []}})");
  file.SetPath("model.vocab", vocabulary);
  const std::string path = ::testing::TempDir() + "start.json";
  std::ofstream(path) << file.ToJson();
  return path;
}

TEST(TextsTest, PromptsHaveTheTokensThatBeginATextBeforeThem) {
  const Job job = LanguageJob(257, BytesOf("f.txt"));
  FakeScript script;
  const Texts texts(job, PlanJob(job, {}, &script), TextOptions({{"tokenizer", FileWithStart()}}),
                    {"Az", "<s>A"});
  EXPECT_THAT(texts.request().prompts, ElementsAre(ElementsAre(256, 65, 122), ElementsAre(256, 65)))
      << "the second has it itself";
  EXPECT_EQ(texts.texts()[0], "Az");
  EXPECT_EQ(ErrorWith(job, {""}, {{"tokenizer", FileWithStart()}}), "prompt 1 is empty");
}

TEST(TextsTest, SaysWhatDoesNotFit) {
  const Job bytes = LanguageJob(256, BytesOf("b.txt"));
  EXPECT_EQ(ErrorWith(bytes, {"a", std::string(11, 'b')}), "no error");
  EXPECT_EQ(ErrorWith(bytes, {}), "there is no prompt");
  EXPECT_EQ(ErrorWith(bytes, {"a", ""}), "prompt 2 is empty");
  EXPECT_EQ(
      ErrorWith(bytes, {std::string(12, 'b')}),
      "prompt 1 has 12 bytes; the model reads 12 (the length of the job's input), so a prompt "
      "may have 11");
  EXPECT_EQ(ErrorWith(LanguageJob(100, BytesOf("c.txt")), {"a"}),
            "the tokenizer has 256 tokens, the model gives scores of 100: they do not belong "
            "together");
  const Job numbered = LanguageJob(300, Numbered());
  EXPECT_THAT(ErrorWith(numbered, {"a"}), HasSubstr("has no tokenizer: give one"));
  EXPECT_EQ(ErrorWith(numbered, {"a"}, {{"tokenizer", "bytes"}}), "no error");
  EXPECT_EQ(ErrorWith(numbered, {"1 2 299"}, {{"tokenizer", "numbers"}}), "no error");
  for (const char* wrong : {"1 2x", "300", "-1", "1  2", "two"}) {
    EXPECT_THAT(ErrorWith(numbered, {wrong}, {{"tokenizer", "numbers"}}),
                HasSubstr("expected tokens from 0 to 299 with spaces between them"));
  }
}

TEST(TextsTest, OfAChatThePromptsAreMessagesInItsTemplate) {
  const std::string file = ::testing::TempDir() + "chat.json";
  std::ofstream(file) << ChatTokenizer();
  const auto tokenizer = data::ReadTokenizer(file);
  const Value::Map options = {{"chat", true}, {"tokenizer", file}};
  Job job = LanguageJob(700, Numbered(200), 200);
  FakeScript script;
  const Plan plan = PlanJob(job, {}, &script);
  const auto error_with = [&](const std::string& prompt, const Value::Map& named) {
    return ErrorOf([&] { Texts(job, plan, TextOptions(named), {prompt}); });
  };
  EXPECT_THAT(error_with("a", options), HasSubstr("the job's data is no strata.data.chat{...}"));
  const auto set_template = [&](const Value& form) {
    const Value chats = MapOf({{"source", "chat"}, {"template", form}});
    job.train_data = {"pack", MapOf({{"of", chats}}), {}, "net.lua:9"};
  };
  // The text of each template up to the answer, as chat_test.cc has it, and what ends the answer.
  const struct {
    const char *form, *text, *end;
  } cases[] = {
      {"llama3",
       "<|begin_of_text|><|start_header_id|>user<|end_header_id|>\n\nHello <s><|eot_id|>"
       "<|start_header_id|>assistant<|end_header_id|>\n\n",
       "<|eot_id|>"},
      {"qwen2.5",
       "<|im_start|>system\nYou are Qwen, created by Alibaba Cloud. You are a helpful assistant."
       "<|im_end|>\n<|im_start|>user\nHello <s><|im_end|>\n<|im_start|>assistant\n",
       "<|im_end|>"},
      {"mistral", "<s>[INST] Hello <s>[/INST]", "</s>"},
      {"chatml", "<|im_start|>user\nHello <s><|im_end|>\n<|im_start|>assistant\n", "<|im_end|>"},
  };
  for (const auto& [form, text, end] : cases) {
    set_template(form);
    const Texts texts(job, plan, TextOptions(options), {"Hello <s>"});
    std::string decoded;
    for (const int32_t token : texts.request().prompts[0]) decoded += tokenizer->Decode(token);
    EXPECT_EQ(decoded, text);
    EXPECT_EQ(texts.request().end, tokenizer->SpecialToken(end)) << form;
    const auto& tokens = texts.request().prompts[0];
    const int32_t spelt = tokenizer->SpecialToken("<s>");
    EXPECT_EQ(std::ranges::count(tokens, spelt), std::string(form) == "mistral" ? 1 : 0)
        << "a message has no special tokens";
    EXPECT_EQ(texts.texts()[0], "Hello <s>\n");
  }
  EXPECT_EQ(error_with("", options), "prompt 1 is empty");
  EXPECT_THAT(error_with("a", {{"chat", true}, {"tokenizer", "bytes"}}),
              HasSubstr("needs the special token \"<|im_start|>\""));
  set_template(FakeFunction());
  EXPECT_THAT(error_with("a", options), HasSubstr("must be a published one, got"));
}

/// An engine that gives the tokens one after the other, all for text 0.
class Speaker : public TextEngine {
 public:
  explicit Speaker(std::vector<int32_t> tokens) : tokens_(std::move(tokens)) {}
  TextReport BeginTexts(const TextRequest&) override { return {"", 5}; }
  std::vector<NewToken> NextTokens() override {
    if (next_ == tokens_.size()) return {};
    const int32_t token = tokens_[next_++];
    return {{0, token, next_ == tokens_.size()}};
  }

 private:
  const std::vector<int32_t> tokens_;
  size_t next_ = 0;
};

TEST(TextsTest, CountsTextsThatTheModelsLengthEnds) {
  const Job job = LanguageJob(256, BytesOf("g.txt"));
  FakeScript script;
  const Plan plan = PlanJob(job, {}, &script);
  Texts texts(job, plan, TextOptions({{"tokens", 3}}), {"a"});
  const auto cut_off_after = [&](const std::vector<int32_t>& tokens) {
    Speaker engine(tokens);
    texts.Write(engine, nullptr, [](size_t, const std::string&, bool) {});
    return texts.cut_off();
  };
  EXPECT_EQ(cut_off_after({'b', 'c'}), 1);
  EXPECT_EQ(cut_off_after({'b', 'c', 'd'}), 0) << "as many as were asked for";
  EXPECT_EQ(cut_off_after({'b'}), 1) << "of this call alone";
}

/// The pieces that are reported when a text of bytes is continued with `tokens`.
std::vector<std::string> PiecesOf(const std::vector<int32_t>& tokens, const std::string& whole) {
  const Job job = LanguageJob(256, BytesOf("d.txt"));
  FakeScript script;
  const Plan plan = PlanJob(job, {}, &script);
  Texts texts(job, plan, TextOptions(), {"a"});
  Speaker engine(tokens);
  std::vector<std::string> pieces;
  const int64_t count = texts.Write(
      engine, [](const TextReport& report) { EXPECT_EQ(report.kept_bytes, 5); },
      [&](size_t, const std::string& piece, bool) { pieces.push_back(piece); });
  EXPECT_EQ(count, static_cast<int64_t>(tokens.size()));
  EXPECT_EQ(texts.texts()[0], whole);
  return pieces;
}

TEST(TextsTest, PiecesAreWholeCharacters) {
  EXPECT_THAT(PiecesOf({'b', 0xc3, 0xa9, 'c'},
                       "ab\xc3\xa9"
                       "c"),
              ElementsAre("b", "\xc3\xa9", "c"));
  EXPECT_THAT(
      PiecesOf({0xe2, 0x82, 0xac, 0xf0, 0x9f, 0x98, 0x80, '!'}, "a\xe2\x82\xac\xf0\x9f\x98\x80!"),
      ElementsAre("\xe2\x82\xac", "\xf0\x9f\x98\x80", "!"));
  EXPECT_THAT(PiecesOf({0xa9, 0xe2, 'b'},
                       "a\xa9\xe2"
                       "b"),
              ElementsAre("\xa9",
                          "\xe2"
                          "b"));
  EXPECT_THAT(PiecesOf({'b', 0xe2}, "ab\xe2"), ElementsAre("b", "\xe2")) << "the end";
}

TEST(TextsTest, ASecondTimeTheyBeginAnew) {
  const Job job = LanguageJob(256, BytesOf("e.txt"));
  FakeScript script;
  Texts texts(job, PlanJob(job, {}, &script), TextOptions(), {"a"});
  for (int i = 0; i < 2; ++i) {
    Speaker engine({'b', 'c'});
    std::string told;
    texts.Write(engine, nullptr, [&](size_t, const std::string& piece, bool) { told += piece; });
    EXPECT_EQ(told, "bc");
    EXPECT_EQ(texts.texts()[0], "abc");
  }
}

TEST(TextsTest, PrintableHasNothingThatMovesTheCursor) {
  EXPECT_EQ(Printable("a\tb\n\xc3\xa9\xe2\x82\xac"), "a\tb\n\xc3\xa9\xe2\x82\xac");
  const std::string none = "\xef\xbf\xbd";
  EXPECT_EQ(Printable("a\x1b[2J\rb\x7f"), "a" + none + "[2J" + none + "b" + none);
  EXPECT_EQ(Printable("\xc2\x9b"
                      "1m"),
            none + "1m");
  EXPECT_EQ(Printable("\xff"
                      "a"),
            none + "a");
}

}  // namespace
}  // namespace strata
