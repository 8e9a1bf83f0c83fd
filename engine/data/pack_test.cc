// The step pack over ragged data, chat and jsonl. Tests that layers, losses and plans treat packed
// rows as their documents alone are in engine/runtime/packed_test.cc.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "engine/base/testing.h"
#include "engine/data/testing.h"
#include "engine/data/testing_sources.h"
#include "engine/layers/targets.h"

namespace strata {
namespace {

using testing::AllOf;
using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

/// Document i has the tokens 1000 i, 1000 i + 1, ... and as targets the same numbers, negated.
class RaggedScript : public FakeDataScript {
 public:
  PlainSample Get(const FunctionRef&, int64_t index, uint64_t) override {
    const int64_t length = lengths[static_cast<size_t>(index)];
    PlainSample sample;
    for (PlainTensors* half : {&sample.input, &sample.target}) {
      half->specs = {{{half == &sample.input ? length : length + extra_targets}, DType::kInt64}};
      for (int64_t i = 0; i < half->specs[0].shape[0]; ++i) {
        const int64_t token = (half == &sample.input ? 1 : -1) * (1000 * index + i);
        half->bytes.append(reinterpret_cast<const char*>(&token), sizeof(token));
      }
    }
    return sample;
  }
  std::vector<int64_t> lengths;
  int64_t extra_targets = 0;
};

/// A row of packed data.
struct PackedRow {
  std::vector<int64_t> tokens, places, labels;
};

class PackTest : public DatasetTest {
 protected:
  PackTest() { context_.script = &script_; }
  Value Documents(std::vector<int64_t> lengths) {
    script_.lengths = std::move(lengths);
    return MakeDataSource(
        "dataset", {},
        {{"length", std::ssize(script_.lengths)}, {"get", FakeFunction()}, {"ragged", true}},
        "net.lua:1");
  }
  std::unique_ptr<Dataset> Pack(const Value& of, int64_t length, Value::Map more = {}) {
    more.emplace_back("length", length);
    return OpenDataset(SpecOf(MakeDataStep("pack", of, {}, more, "net.lua:2"), context_), context_);
  }
  std::string ErrorOfPack(const Value& of, int64_t length) {
    return strata::ErrorOf([&] { Pack(of, length); });
  }
  static PackedRow Row(const Dataset& data, int64_t index, int64_t epoch = 0) {
    const auto length = static_cast<size_t>(data.targets()[0].shape[0]);
    std::vector<int64_t> both(2 * length), labels(length);
    data.Read({index, epoch}, reinterpret_cast<std::byte*>(both.data()), nullptr);
    data.Read({index, epoch}, nullptr, reinterpret_cast<std::byte*>(labels.data()));
    const auto middle = both.begin() + static_cast<std::ptrdiff_t>(length);
    return {{both.begin(), middle}, {middle, both.end()}, labels};
  }
  /// The documents of all rows, each with its labels; without the padding.
  static std::vector<std::pair<std::vector<int64_t>, std::vector<int64_t>>> DocumentsOf(
      const Dataset& data) {
    std::vector<std::pair<std::vector<int64_t>, std::vector<int64_t>>> documents;
    for (int64_t i = 0; i < data.size(); ++i) {
      const PackedRow row = Row(data, i);
      for (size_t t = 0; t < row.tokens.size(); ++t) {
        if (t == 0 || row.places[t] == 0) documents.emplace_back();
        EXPECT_EQ(row.places[t], std::ssize(documents.back().first));
        documents.back().first.push_back(row.tokens[t]);
        documents.back().second.push_back(row.labels[t]);
      }
    }
    const auto counts = [](int64_t label) { return label != kNoLabel; };
    std::erase_if(documents, [&](const auto& document) {
      return std::ranges::none_of(document.second, counts);
    });
    std::ranges::sort(documents);
    return documents;
  }

  RaggedScript script_;
};

TEST_F(PackTest, EveryDocumentLiesWholeInOneRow) {
  std::vector<int64_t> lengths(700);
  for (size_t i = 0; i < lengths.size(); ++i) lengths[i] = static_cast<int64_t>(i * 37 % 31);
  const auto packed = Pack(Documents(lengths), 64);
  const auto documents = DocumentsOf(*packed);
  size_t number = 0;
  for (size_t i = 0; i < lengths.size(); ++i) {
    if (lengths[i] == 0) continue;
    std::vector<int64_t> tokens(static_cast<size_t>(lengths[i])), labels;
    std::iota(tokens.begin(), tokens.end(), 1000 * static_cast<int64_t>(i));
    for (const int64_t token : tokens) labels.push_back(-token);
    ASSERT_LT(number, documents.size());
    EXPECT_EQ(documents[number++], std::pair(tokens, labels)) << i;
  }
  EXPECT_EQ(number, documents.size());
  const int64_t tokens = std::accumulate(lengths.begin(), lengths.end(), int64_t{0});
  EXPECT_LE(packed->size(), tokens / 64 * 101 / 100 + 1) << "1 % of waste at most";
  EXPECT_EQ(packed->inputs(), (TensorSpecs{{{64}, DType::kInt64}, {{64}, DType::kInt64}}));
  EXPECT_EQ(packed->targets(), (TensorSpecs{{{64}, DType::kInt64}}));
}

TEST_F(PackTest, LimitsHoldForEveryRow) {
  const auto packed = Pack(Documents({3, 5, 2, 4, 6, 1, 7, 3, 2, 5, 1, 1}), 9);
  DocumentLimits seen;
  for (int64_t i = 0; i < packed->size(); ++i) {
    const PackedRow row = Row(*packed, i);
    seen.in_row = std::max<int64_t>(seen.in_row, std::ranges::count(row.places, 0));
    seen.tokens = std::max(seen.tokens, *std::ranges::max_element(row.places) + 1);
  }
  EXPECT_EQ(packed->documents(), seen);
  EXPECT_EQ(packed->facts().documents, seen);
  EXPECT_EQ(Pack(Documents({1, 1}), 8)->documents(), (DocumentLimits{8, 1})) << "padding counts";
}

/// Places in the padding are below the length of the longest document, which a table of positions
/// may have.
TEST_F(PackTest, PaddingIsDocumentsWithoutLabels) {
  const auto packed = Pack(Documents({3, 2}), 10, {{"seed", 0}});
  ASSERT_EQ(packed->size(), 1);
  const PackedRow row = Row(*packed, 0);
  const bool swapped = row.tokens[0] == 1000;
  EXPECT_THAT(row.tokens, swapped ? ElementsAre(1000, 1001, 0, 1, 2, 0, 0, 0, 0, 0)
                                  : ElementsAre(0, 1, 2, 1000, 1001, 0, 0, 0, 0, 0));
  EXPECT_THAT(row.places, swapped ? ElementsAre(0, 1, 0, 1, 2, 0, 1, 2, 0, 1)
                                  : ElementsAre(0, 1, 2, 0, 1, 0, 1, 2, 0, 1));
  EXPECT_EQ(std::vector(row.labels.begin() + 5, row.labels.end()), std::vector(5, kNoLabel));
  EXPECT_THAT(packed->notes(),
              ElementsAre("pack: 2 documents in 1 row of 10 tokens, 50 % padding; attention takes "
                          "26 % of the work on whole rows, which plans assume"));
}

TEST_F(PackTest, TheSeedDecidesTheRows) {
  const Value documents = Documents({3, 5, 2, 4, 6, 1, 7, 3, 2, 5});
  const auto rows = [&](int64_t seed) {
    const auto packed = Pack(documents, 8, {{"seed", seed}});
    std::vector<int64_t> all;
    for (int64_t i = 0; i < packed->size(); ++i) {
      for (const int64_t token : Row(*packed, i).tokens) all.push_back(token);
    }
    return all;
  };
  EXPECT_EQ(rows(1), rows(1));
  EXPECT_NE(rows(1), rows(2));
}

TEST_F(PackTest, LongDocumentsAreRefusedOrSplit) {
  const Value documents = Documents({3, 11});
  EXPECT_THAT(ErrorOfPack(documents, 4),
              AllOf(HasSubstr("sample 1 of dataset"),
                    HasSubstr("has 11 tokens, a row has length=4; long=\"split\"")));
  const auto packed = Pack(documents, 4, {{"long", "split"}});
  std::vector<std::vector<int64_t>> tokens;
  for (const auto& [document, labels] : DocumentsOf(*packed)) tokens.push_back(document);
  EXPECT_THAT(tokens,
              ElementsAre(ElementsAre(0, 1, 2), ElementsAre(1000, 1001, 1002, 1003),
                          ElementsAre(1004, 1005, 1006, 1007), ElementsAre(1008, 1009, 1010)));
  EXPECT_THAT(
      packed->notes(),
      ElementsAre("pack: 4 documents (parts of split ones) in 4 rows of 4 tokens, 12.5 % padding; "
                  "attention takes 81.3 % of the work on whole rows, which plans assume",
                  "pack: 1 document longer than a row is split; the longest has 11 tokens"));
}

TEST_F(PackTest, RefusesWhatAreNoDocuments) {
  EXPECT_THAT(
      ErrorOfPack(MakeDataSource("images", {}, {{"shape", Value::IntList({1, 8, 8})}}, ""), 8),
      AllOf(HasSubstr("expects documents of int64 tokens"), HasSubstr("float32 (1, 8, 8)")));
  EXPECT_THAT(ErrorOfPack(Documents({0, 0}), 8), HasSubstr("pack: no tokens in dataset"));
  const Value documents = Documents({3, 2});
  script_.extra_targets = 1;
  EXPECT_THAT(ErrorOfPack(documents, 8), HasSubstr("has 2 tokens and 3 targets"));
}

/// A document that grew would lose its end.
TEST_F(PackTest, RefusesLengthsThatChange) {
  const auto read = [&](int64_t length, int64_t before, int64_t now, const char* what) {
    const auto packed = Pack(Documents({before}), length, {{"long", what}});
    script_.lengths = {now};
    return strata::ErrorOf([&] { Row(*packed, 0, 5); });
  };
  EXPECT_THAT(read(8, 3, 1, "refuse"), HasSubstr("has 1 tokens in epoch 5 and had 3 when it was"));
  EXPECT_THAT(read(8, 3, 4, "split"), HasSubstr("has 4 tokens in epoch 5 and had 3 when it was"));
  EXPECT_THAT(read(3, 3, 4, "refuse"), HasSubstr("has 4 tokens in epoch 5 and had 3 when it was"));
  EXPECT_THAT(read(3, 6, 2, "split"), HasSubstr("has 2 tokens in epoch 5 and had at least "));
  EXPECT_EQ(read(3, 6, 6, "split"), "no error");
}

TEST_F(PackTest, TakesWholeTextsOfJsonLines) {
  const std::string path =
      Write("a.jsonl", "{\"text\": \"abc\"}\n{\"text\": \"de\"}\n{\"text\": \"\"}\n");
  const auto of = MakeDataSource("jsonl", {path}, {}, "net.lua:1");
  const auto packed = Pack(of, 3);  // the source's `length` is that of the rows
  EXPECT_THAT(DocumentsOf(*packed),
              ElementsAre(std::pair(std::vector<int64_t>{'a', 'b'}, std::vector<int64_t>{'b', 'c'}),
                          std::pair(std::vector<int64_t>{'d'}, std::vector<int64_t>{'e'})));
  // The steps in between keep the lengths.
  const auto taken = Pack(MakeDataStep("take", of, {}, {{"count", 1}}, "net.lua:1"), 3);
  EXPECT_EQ(DocumentsOf(*taken).size(), 1u);
  const std::string none = Write("none.jsonl", "");
  EXPECT_EQ(ErrorOfPack(MakeDataSource("jsonl", {none}, {}, ""), 3),
            none + ": expected JSON lines, got none");
}

TEST_F(PackTest, SaysWhatItLeavesOut) {
  EXPECT_THAT(Pack(Documents({0, 2, 0}), 4)->notes(),
              Contains("pack: 2 documents without tokens are left out"));
  EXPECT_THAT(Pack(Documents({2}), 4)->notes(), Not(Contains(HasSubstr("left out"))));
}

/// Without `counted`, a split in pieces of running text would take a part of the texts.
TEST_F(PackTest, RefusesPartsThatWereNotCountedInDocuments) {
  const std::string path = Write("a.jsonl", "{\"text\": \"abcdef\"}\n{\"text\": \"ghijkl\"}\n");
  const Value of = MakeDataSource("jsonl", {path}, {{"length", 3}}, "");
  const auto part = [&](int64_t counted) {
    return MakeDataStep("part", of, {}, {{"begin", 0}, {"end", 1}, {"counted", counted}}, "");
  };
  EXPECT_THAT(ErrorOfPack(part(3), 8),
              HasSubstr("split counted 3 samples, but pack gets 2 of jsonl: 2 texts of " + path +
                        "; split what is packed: data:pack{...}:split{...}"));
  EXPECT_EQ(DocumentsOf(*Pack(part(2), 8)).size(), 1u);
}

TEST_F(PackTest, TakesWholeConversations) {
  std::string lines;
  for (const char* answer : {"no", "the quick brown fox jumps over the lazy dog"}) {
    lines += Str(R"({"messages": [{"role": "user", "content": "fox"}, {"role": "assistant", )",
                 R"("content": ")", answer, "\"}]}\n");
  }
  const Value of = MakeDataSource("chat", {Write("a.jsonl", lines), "chatml"},
                                  {{"tokenizer", Write("tokenizer.json", ChatTokenizer())}}, "");
  Value alone = of;
  alone.Set("length", 200);
  const auto one_by_one = OpenDataset(SpecOf(alone, context_), context_);
  const auto documents = DocumentsOf(*Pack(of, 150));
  ASSERT_EQ(documents.size(), 2u);
  for (int64_t i = 0; i < 2; ++i) {
    std::vector<int64_t> tokens = Ints(*one_by_one, i, false), labels = Ints(*one_by_one, i, true);
    const auto is_this = [&](const auto& document) {
      const auto count = std::ssize(document.first);
      return std::equal(document.first.begin(), document.first.end(), tokens.begin()) &&
             std::equal(document.second.begin(), document.second.end(), labels.begin()) &&
             std::all_of(labels.begin() + count, labels.end(),
                         [](int64_t label) { return label == kNoLabel; });
    };
    EXPECT_EQ(std::ranges::count_if(documents, is_this), 1) << i;
  }
  EXPECT_THAT(ErrorOfPack(of, 10), HasSubstr("has length=10; long=\"split\""));
}

}  // namespace
}  // namespace strata
