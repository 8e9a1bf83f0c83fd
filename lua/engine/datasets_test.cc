// Datasets in scripts with tensors: functions on samples, samples by index, trainings of an epoch
// with every kind of source, tensors in files.

#include "engine/base/text.h"
#include "lua/testing.h"

namespace strata::lua {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

constexpr char kBegin[] = R"(
nn, F, data = strata.nn, strata.F, strata.data
-- Nine samples: four numbers that depend on i, and a class.
function sample(i) return F.arange(4, {dtype="float32"}):mul(0.1):add(i % 3), i % 3 end
own = strata.dataset{length = 9, get = sample}
batched = strata.dataset{length = 9, batch = function(indices)
  local x, y = {}, {}
  for k, i in ipairs(indices:tolist()) do x[k], y[k] = sample(i) end
  return F.stack(x), F.tensor(y)
end}
function job(train, test, more)
  local keys = {
    device = "cpu", threads = 1, layers = {nn.Linear{4, 8}, nn.Tanh{}, nn.Linear{8, 3}},
    loss = nn.CrossEntropyLoss{}, batch = {micro_batches = 2, micro_batch_size = 2},
    optimizer = {"sgd", lr = 0.1}, data = {train = train, test = test}, epochs = 2, transport = "threads",
  }
  for name, value in pairs(more or {}) do keys[name] = value end
  return strata.job(keys)
end
function losses(job, keys)
  local list = {}
  for i, step in ipairs(job:train(keys)) do list[i] = ("%.17g"):format(step.loss) end
  return table.concat(list, " ")
end
)";

using DatasetsTest = BegunTest<kBegin>;

TEST_F(DatasetsTest, SamplesByIndex) {
  EXPECT_EQ(Show("#own, #batched"), "9\n9");
  EXPECT_EQ(Show("own[4][1]:mul(10):round():tolist(), own[4][2]:item()"), "{10, 11, 12, 13}\n1");
  Show("x, y = batched:sample(-1)");
  EXPECT_EQ(Show("y:item(), own[-1][2]:item()"), "2\n2");
  EXPECT_THAT(Fail("own[9]"), HasSubstr("there is no sample 9; they are 0 to 8"));
  EXPECT_THAT(Fail("own[0.5]"), HasSubstr("there is no sample 0.5"));
  EXPECT_THAT(Fail("strata.dataset{length = 2, get = function(i) return {7, 'a'} end}[0]"),
              HasSubstr("the input, a tensor or a list of tensors, got a list whose entry 2 is "
                        "the string \"a\""));
  EXPECT_THAT(Show("own"), StartsWith("dataset: 9 samples of float32 (4,) -> int64 ()"));
}

TEST_F(DatasetsTest, AFunctionOfBatchesTrainsAsOneOfSamples) {
  const std::string alone = Show("losses(job(own))");
  EXPECT_EQ(Show("losses(job(batched))"), alone);
  EXPECT_EQ(Show("losses(job(own, nil, {data = {train = own, workers = 0}}))"), alone);
  EXPECT_THAT(Fail("losses(job(own, nil, {data = {train = own, workers = 3, prefetch = 5}}))"),
              HasSubstr("functions of the script run in the rank's own thread"));
  EXPECT_EQ(Show("losses(job(own), {pipe = 3})"), alone);
  EXPECT_EQ(Show("losses(job(own:cache()))"), alone);
  EXPECT_NE(Show("losses(job(own), {seed = 5, batch = {micro_batches = 2, micro_batch_size = 2}})"),
            alone);
}

TEST_F(DatasetsTest, MapAndFilterAreFunctionsOfSamples) {
  EXPECT_EQ(Show("#own:filter(function(x, y) return y:item() ~= 1 end)"), "6");
  EXPECT_EQ(Show("own:map(function(x, y) return x:mul(2), y + 1 end)[4][2]:item()"), "2");
  EXPECT_EQ(Show("own:map(function(x, y) return {x, x:gt(1)}, y end)[4][1][2]:tolist()"),
            "{false, true, true, true}");
  // A function that works in place changes a copy.
  EXPECT_EQ(Show("a = own:cache(); b = a:map(function(x, y) return x:zero_(), y end)\n"
                 "_ = b[3]; return a[3][1]:sum():item() == own[3][1]:sum():item()"),
            "true");
  EXPECT_THAT(Fail("#own:filter(function(x, y) return y end)"),
              AllOf(HasSubstr("prompt["), HasSubstr("expected true or false")));
  EXPECT_THAT(Fail("#own:filter(function(x, y) return false end)"),
              HasSubstr("keeps none of the 9"));
  EXPECT_THAT(Fail("#own:map(function(x, y) return 'no' end)"), HasSubstr("the input"));
  EXPECT_THAT(
      Fail("job(own:map(function(x, y) return x:narrow(0, 0, 1 + y:item()), y end), nil, {layers = "
           "{function(x) return x end}, loss = function(y) return y:sum() end}):train{}"),
      HasSubstr("returned other shapes or dtypes than for sample 0 (sample "));
  EXPECT_THAT(Fail("strata.dataset{length = 3, get = function(i) return F.ones{i + 1} end}[1]"),
              HasSubstr("gave the input float32 (2,), expected float32 (1,) as for sample 0"));
}

TEST_F(DatasetsTest, NumbersStandInListsToo) {
  Show(
      "two = strata.dataset{length = 8, get = function(i) return F.ones{4}, {i % 3, i + 0.5} end}");
  EXPECT_THAT(Show("two"), HasSubstr("float32 (4,) -> int64 (), float32 ()"));
  EXPECT_EQ(Show("{two[4][2][1]:item(), two[4][2][2]:item()}"), "{1, 4.5}");
  Show("function both(y, t) return F.cross_entropy(y, t[1]) + t[2]:mean() end");
  EXPECT_EQ(Show("job(two, nil, {loss = both, epochs = 1}):train{}[1].loss > 0"), "true");
}

TEST_F(DatasetsTest, WholeNumbersAreNamedWhereTheyAreNotMeant) {
  constexpr char kHint[] =
      "whole numbers make int64, F.tensor(list, {dtype = \"float32\"}) does not";
  const auto of = [](const char* input, const char* target) {
    return Str("strata.dataset{length = 4, get = function(i) return ", input, ", ", target,
               " end}");
  };
  EXPECT_THAT(Fail(Str("job(", of("F.tensor{i, 1, 2, 3}", "0"), "):plan{}")),
              AllOf(HasSubstr("expects float32, got int64 (2, 4); "), HasSubstr(kHint)));
  EXPECT_THAT(Fail(Str(of("F.ones{4}", "i / 2"), "[1]")),
              AllOf(HasSubstr("gave the target float32 (), expected int64 () as for sample 0; "),
                    HasSubstr(kHint)));
  EXPECT_THAT(Fail(Str(of("F.ones{i + 1}", "0"), "[1]")), Not(HasSubstr("whole numbers")));
}

/// The random numbers in functions depend on the sample, not on the stage that reads it.
TEST_F(DatasetsTest, FunctionsDrawTheSameOnEveryStage) {
  Show(
      "noisy = own:map(function(x, y) return x + F.rand{4}:mul(0.1):add(math.random() * 0.1), y "
      "end)");
  const std::string alone = Show("losses(job(noisy))");
  EXPECT_EQ(Show("losses(job(noisy), {pipe = 2})"), alone);
}

TEST_F(DatasetsTest, AFilterDrawsForEachSample) {
  Show("many = strata.dataset{length = 200, get = function(i) return F.tensor{i}, 0 end}");
  for (const char* number : {"F.rand{1}:item()", "math.random()"}) {
    Show(Str("half = many:filter(function() return ", number, " < 0.5 end)"));
    EXPECT_EQ(Show("#half > 60 and #half < 140"), "true") << number;
    EXPECT_EQ(Show(Str("#half == #many:filter(function() return ", number, " < 0.5 end)")), "true");
  }
}

TEST_F(DatasetsTest, TestDataIsEvaluated) {
  Show("train, test = own:split{6, 3, seed = 1}");
  EXPECT_EQ(Show("#train, #test"), "6\n3");
  EXPECT_EQ(Show("#job(train, test):train{}"), "4") << "two epochs of two steps";
}

TEST_F(DatasetsTest, LabelsWithoutAClassAreRefusedBeforeTheTraining) {
  const ScriptFolder folder;
  const std::string path =
      folder.Write("a.csv", "a,b,c,d,y\n1,2,3,4,x\n2,3,4,5,y\n3,4,5,6,z\n0,1,2,3,w\n");
  EXPECT_THAT(Fail(Str("job(data.csv{'", path, "'}):train{}")),
              HasSubstr("the labels of strata.data.csv are 0 to 3, but"));
}

/// Words and classes of the test data must be numbered as in the training data.
TEST_F(DatasetsTest, WordsAndClassesAreThoseOfTheTraining) {
  const ScriptFolder folder;
  const std::string one = folder.Write("1.csv", "a,b,y\n1,red,cat\n2,blue,dog\n3,red,owl\n");
  const std::string words = folder.Write("2.csv", "a,b,y\n1,red,cat\n2,grey,dog\n3,red,owl\n");
  const std::string classes = folder.Write("3.csv", "a,b,y\n1,red,dog\n2,blue,owl\n3,red,pig\n");
  const auto csv = [](const std::string& path) { return Str("data.csv{'", path, "'}"); };
  const auto pair = [&](const std::string& train, const std::string& test) {
    return Str("#job(", train, ", ", test, ", {layers = {nn.Linear{3, 4}}}):train{}");
  };
  const std::string same = ":map(function(x, y) return x, y end)";
  EXPECT_EQ(Show(pair(csv(one), csv(one))), Show(pair(csv(one) + same, csv(one) + same)));
  EXPECT_THAT(
      Fail(pair(csv(one), csv(words))),
      HasSubstr("data.test makes other numbers of its cells than data.train: by other columns"));
  EXPECT_THAT(Fail(Str("return ", csv(one), ":concat(", csv(words), ")")),
              HasSubstr("part 2 of concat makes other numbers of its cells than part 1"));
  const std::string far = folder.Write("4.csv", "a,b,y\n7,red,cat\n2,blue,dog\n3,red,owl\n");
  const std::string turned = folder.Write("5.csv", "b,a,y\n7,red,cat\n2,blue,dog\n3,red,owl\n");
  const auto scaled = [](const std::string& path, const std::string& more) {
    return Str("data.csv{'", path, "', normalise = true", more, "}");
  };
  const std::string like = Str(", like = '", one, "'");
  EXPECT_EQ(Show(pair(scaled(one, ""), scaled(far, like))), Show(pair(csv(one), csv(far))));
  for (const auto& [train, test] : {std::pair(scaled(one, ""), scaled(far, "")),
                                    {scaled(one, ""), Str("data.csv{'", far, "'", like, "}")},
                                    {csv(one), csv(turned)}}) {
    EXPECT_THAT(Fail(pair(train, test)), HasSubstr("makes other numbers of its cells")) << test;
  }
  const std::string gap = folder.Write("9.csv", "a,b,y\n,red,cat\n6,blue,dog\n3,red,owl\n");
  const std::string numbers = folder.Write("10.csv", "a,b,c,y\n1,2,3,cat\n3,2,1,dog\n4,4,4,owl\n");
  const std::string worded = folder.Write("11.csv", "a,b,c,y\n1,2,x,cat\n3,2,x,dog\n4,4,x,owl\n");
  const std::string fills = Str("data.csv{'", gap, "', missing = 'mean'");
  for (const auto& [train, test] :
       {std::pair(csv(one), fills + "}"),
        {fills + "}",
         Str("data.csv{'", one, "', like = '", far, "'}:concat(", fills, ", like = '", far, "'})")},
        {csv(numbers), csv(worded)},
        {scaled(one, "") + same, scaled(far, "") + same}}) {
    EXPECT_THAT(Fail(pair(train, test)), HasSubstr("makes other numbers of its cells")) << test;
  }
  EXPECT_EQ(Show(pair(csv(one), fills + like + "}")), Show(pair(csv(one), csv(one))));
  EXPECT_EQ(Show(pair(scaled(one, "") + same, scaled(far, like) + same)),
            Show(pair(csv(one), csv(one))));
  // Equal numberings are accepted, and so are cases in which the difference cannot be seen.
  const std::string numbered = folder.Write("6.csv", "7,red,cat\n2,blue,dog\n3,red,owl\n");
  const std::string turned_rows =
      folder.Write("7.csv", "a,b,y\n3,red,owl\n2,blue,dog\n1,red,cat\n");
  const std::string wide =
      folder.Write("8.csv", "i,a,b,y\n5,1,red,cat\n5,2,blue,dog\n5,3,red,owl\n");
  const std::string drops = ":map(function(x, y) return x:narrow(0, 1, 3), y end)";
  const std::string halves = ":map(function(x, y) return x / 2, y end)";
  for (const auto& [train, test] :
       {std::pair(csv(one), Str("data.csv{'", numbered, "', header = false, target = 3}")),
        {scaled(one, ""), scaled(turned_rows, "")},
        {Str("data.csv{'", one, "', missing = 'mean'}"), csv(far)},
        {csv(wide) + drops, csv(one)},
        {scaled(one, ""), csv(far) + halves}}) {
    EXPECT_EQ(Show(pair(train, test)), Show(pair(csv(one), csv(far)))) << train << " " << test;
  }
  const std::string npy = (folder.path() / "x.npy").string();
  Show(Str("strata.tensors.save('", npy, "', F.ones{4, 3})"));
  const std::string first = Str("data.npy{'", npy, "'}:map(function(x) return x, F.tensor(1) end)");
  EXPECT_THAT(Fail(Str("return ", first, ":concat(", scaled(one, ""), ", ", scaled(far, ""), ")")),
              HasSubstr("part 3 of concat"));
  const std::string joined = Str(csv(one) + same, ":concat(", csv(one) + same, ")");
  for (const auto& [train, test] : {std::pair(csv(one) + same, csv(classes)),
                                    {joined, csv(classes)},
                                    {csv(one), csv(classes) + same},
                                    {csv(one) + same, csv(classes) + same}}) {
    EXPECT_THAT(Fail(pair(train, test)), HasSubstr("data.test has other classes than data.train: "
                                                   "data.test has dog, owl, pig; data.train has "
                                                   "cat, dog, owl; behind map they have no names"));
  }
}

TEST_F(DatasetsTest, TokensWithoutARowAreNamed) {
  EXPECT_THAT(
      Fail("job(strata.dataset{length = 4, get = function(i) return F.tensor{i * 3}, 0 end}, "
           "nil, {layers = {nn.Embedding{8, 3}, nn.Flatten{}}}):train{}"),
      HasSubstr("layer 0 Embedding(8, 3): expected a token from 0 to 7, got 9"));
}

TEST_F(DatasetsTest, EpochsOfFilesTrain) {
  const ScriptFolder folder;
  std::string table = "a,b,c,d,y\n", lines;
  for (int i = 0; i < 8; ++i) {
    table += Str(i, ",", 2 * i % 5, ",", i % 3, ",1,", i % 2 ? "odd" : "even", "\n");
    lines += Str("{\"text\": \"", i, " of it\", \"class\": \"", i % 2 ? "odd" : "even", "\"}\n");
  }
  const std::string csv = folder.Write("a.csv", table), jsonl = folder.Write("a.jsonl", lines);
  const std::string npy = (folder.path() / "x.npy").string(),
                    tensors = (folder.path() / "xy.safetensors").string();
  Show(Str("strata.tensors.save('", npy, "', F.rand{8, 4})"));
  Show(Str("strata.tensors.save('", tensors,
           "', {x = F.rand{8, 4}, y = F.arange(8):remainder(3)})"));
  const std::string images = folder.Write(
      "images.idx", std::string("\0\0\10\3\0\0\0\4\0\0\0\2\0\0\0\2", 16) + "abcdefghijklmnop");
  const std::string labels =
      folder.Write("labels.idx", std::string("\0\0\10\1\0\0\0\4\2\0\1\0", 12));
  for (const char* name : {"cat/1.png", "cat/2.png", "dog/1.png", "dog/2.png", "dog/3.png"}) {
    const std::string file = folder.Write(Str("photos/", name), "");
    std::filesystem::copy_file("engine/data/testdata/picture.png", file,
                               std::filesystem::copy_options::overwrite_existing);
  }
  const std::string photos = (folder.path() / "photos").string();
  EXPECT_THAT(Show(Str("data.image_folder{'", photos, "', size = 16}")),
              AllOf(HasSubstr("5 images of 16x16"), HasSubstr("2 classes: cat, dog"),
                    HasSubstr("sample 0:\n")));
  const std::string words =
      "layers = {nn.Embedding{256, 4}, function(x) return x:mean(1) end, nn.Linear{4, 2}}";
  const std::string small = "{layers = {nn.Flatten{}, nn.Linear{192, 2}}}";
  const std::string photo = Str("data.image_folder{'", photos, "', size = 10}");
  const std::string sources[] = {
      Str("job(", photo, ":random_crop{8}:flip{}, ", photo, ":resize{8}, ", small, ")"),
      Str("job(data.idx{'", images, "', '", labels, "'}, data.idx{'", images, "', '", labels,
          "'}, {layers = {nn.Flatten{}, nn.Linear{4, 3}}, epochs = 4})"),
      Str("job(data.csv{'", csv, "', normalise = true}, data.csv{'", csv, "', like = '", csv,
          "', normalise = true})"),
      Str("job(data.npy{'", npy, "'}, nil, {layers = {nn.Linear{4, 4}}, loss = nn.MSELoss{}})"),
      Str("job(data.safetensors{'", tensors, "', target = 'y'})"),
      Str("job(data.jsonl{'", jsonl, "', target = 'class', length = 6}, nil, {", words, "})"),
      Str("job(data.token_file{'", jsonl, "', dtype = 'uint8', length = 6}, nil, ",
          "{layers = {nn.Embedding{256, 4}, nn.Linear{4, 256}}})"),
      "job(data.images{{1, 2, 2}, classes = 3, samples = 8}:one_hot{}:mix_up{}, nil, "
      "{layers = {nn.Flatten{}, nn.Linear{4, 3}}, loss = nn.MSELoss{}})",
  };
  for (const std::string& source : sources) {
    Show(Str("steps = ", source, ":train{pipe = 1}"));
    EXPECT_EQ(Show("#steps > 3 and steps[1].loss == steps[1].loss"), "true") << source;
    const std::string one = Show(Str("losses(", source, ", {pipe = 1})"));
    EXPECT_EQ(Show(Str("losses(", source, ", {pipe = 1, data = {workers = 2}})")), one);
  }
}

/// Every counted token has the same weight, however a batch is cut: rows have 2 to 11 of them, and
/// the last one none, since its question is too long.
TEST_F(DatasetsTest, ChatTrainsOnTheTokensOfAnswers) {
  const ScriptFolder folder;
  std::ifstream file("engine/data/testdata/gpt2.tokenizer.json");
  std::string tokenizer{std::istreambuf_iterator<char>(file), {}}, lines;
  const std::string added = "\"added_tokens\":[";
  for (const int id : {600, 601}) {
    tokenizer.insert(tokenizer.find(added) + added.size(),
                     Str(R"({"id":)", id, R"(,"content":"<|im_)", id == 600 ? "start" : "end",
                         R"(|>","normalized":false,"special":true},)"));
  }
  for (size_t i = 0; i < 8; ++i) {
    lines += Str(R"({"messages": [{"role": "user", "content": ")",
                 std::string(i == 7 ? 90 : 2, '?'), R"("}, {"role": "assistant", "content": ")",
                 std::string(1 + i % 4 * 3, '!'), R"("}]})", "\n");
  }
  const std::string path = folder.Write("a.jsonl", lines);
  Show(Str("chat = data.chat{'", path, "', 'chatml', 30, tokenizer = '",
           folder.Write("tokenizer.json", tokenizer), "'}"));
  EXPECT_THAT(Show("chat"), AllOf(HasSubstr("602 classes\nsample 0:\n<|im_start|>user\n??"),
                                  HasSubstr("assistant\n\u27e6!<|im_end|>\u27e7\n")));
  Show(R"(
small = {layers = {nn.Embedding{602, 8}, nn.Tanh{}, nn.Linear{8, 602}}}
function of(micro_batches, size, parallel)
  local batch = {micro_batches = micro_batches, micro_batch_size = size}
  return losses(job(chat, nil, small), {batch = batch, parallel = parallel or {pipe = 1}, partition = "uniform"})
end
function is_near(a, b)
  local next_of_b = b:gmatch("%S+")
  for loss in a:gmatch("%S+") do
    if math.abs(loss - next_of_b()) > 1e-5 then return false end
  end
  return next_of_b() == nil
end)");
  EXPECT_EQ(Show("whole = of(1, 4); return is_near(whole, of(2, 2)) and is_near(whole, of(4, 1))"),
            "true");
  EXPECT_EQ(Show("is_near(whole, of(2, 1, {pipe = 1, data = 2}))"), "true");
  EXPECT_EQ(Show("of(2, 2, {pipe = 2}) == of(2, 2)"), "true");
}

TEST_F(DatasetsTest, AChatTemplateMayBeAFunction) {
  const ScriptFolder folder;
  const std::string path = folder.Write(
      "a.jsonl",
      R"({"messages": [{"role": "user", "content": "1+1"}, {"role": "assistant", "content": "2"}]})");
  Show(R"(
function template(messages)
  local parts = {}
  for i, m in ipairs(messages) do parts[i] = {text = m.content .. "\n", train = m.role == "assistant"} end
  return parts
end)");
  const std::string chat = Str("data.chat{'", path, "', template, 8}");
  EXPECT_THAT(Show(chat), HasSubstr("\nsample 0:\n1+1\n\u27e62\n\u27e7"));
  EXPECT_EQ(Show(Str("d = ", chat, "; return d[0][1]:tolist()")), "{49, 43, 49, 10, 50, 10, 0, 0}");
  EXPECT_THAT(Show(Str("d = ", chat, "; return d[0][2]:tolist()")),
              "{-100, -100, -100, 50, 10, -100, -100, -100}");
  Show("bytes = {layers = {nn.Embedding{256, 4}, nn.Linear{4, 256}}, partition = 'uniform'}");
  EXPECT_EQ(Show("losses(job(d:concat(d, d, d), nil, bytes), {pipe = 2})"),
            Show("losses(job(d:concat(d, d, d), nil, bytes), {pipe = 1})"));
  EXPECT_THAT(Fail(Str("#data.chat{'", path, "', function() return {{train = true}} end, 8}")),
              HasSubstr("a.jsonl:1: part 1 needs text"));
}

/// Sequences of several lengths: the mask is a further input, and padding is ignored by the loss.
TEST_F(DatasetsTest, RaggedSamplesArePadded) {
  Show(R"(
ragged = strata.dataset{length = 8, ragged = true, get = function(i)
  return F.arange(1 + i % 4):add(1), F.arange(1 + i % 4):remainder(3) end}
seen = {}
padded = {
  layers = {function(x, mask)
    seen[#seen + 1] = {x:tolist(), mask:tolist()}
    return x
  end, nn.Embedding{9, 3}}, loss = nn.CrossEntropyLoss{}, data = {train = ragged, collate = "pad"}}
)");
  const std::string alone = Show("losses(job(ragged, nil, padded), {pipe = 1})");
  EXPECT_EQ(Show("seen = {}; return losses(job(ragged, nil, padded), {pipe = 2})"), alone);
  // A micro-batch has rows of two lengths: the shorter one ends in zeros, and its mask in false.
  EXPECT_EQ(Show(R"(
local short = 0
for _, batch in ipairs(seen) do
  for k, row in ipairs(batch[1]) do
    for i, token in ipairs(row) do
      if (token ~= 0) ~= batch[2][k][i] then return "mask and tokens differ" end
      if token == 0 then short = short + 1 end
    end
  end
end
return short > 0)"),
            "true");
  Show("same = ragged:map(function(x, y) return x, y end)");
  for (const char* data : {"same", "ragged:cache{}", "same:cache{}:take(8)"}) {
    Show(Str("padded.data = {train = ", data, ", collate = 'pad'}"));
    EXPECT_EQ(Show("losses(job(padded.data.train, nil, padded), {pipe = 1})"), alone) << data;
  }
  Show(R"(
turned = ragged:map(function(x, y) return #x:tolist() < 4 and x or x:view(4, 1), y end)
padded.data = {train = turned, collate = "pad"})");
  EXPECT_THAT(Fail("job(turned, nil, padded):train{pipe = 1}"),
              HasSubstr("the function of map returned other dims or dtypes than for sample 0"));
  EXPECT_THAT(Fail("job(ragged:cache{}, nil, {layers = {nn.Embedding{9, 3}}}):train{}"),
              HasSubstr("collate=\"pad\" makes batches of such samples"));
  Show(R"(
small = strata.dataset{length = 8, ragged = true, get = function(i)
  return F.arange(1 + i % 4):add(1), F.arange(1 + i % 4):remainder(3):to{dtype = "uint8"} end}
padded.data = {train = small, collate = "pad"})");
  EXPECT_EQ(Show("losses(job(small, nil, padded), {pipe = 1})"), alone) << "-100 is no uint8";
  EXPECT_THAT(
      Fail("job(ragged, nil, {layers = {function(x, mask) return x end, nn.Embedding{9, 1}, "
           "function(x) return x:squeeze(-1) end}, loss = nn.MSELoss{}, data = {train = "
           "ragged, collate = 'pad'}}):train{pipe = 1}"),
      HasSubstr("fills targets up, which the loss MSELoss would count"));
  Show(R"(
shares = strata.dataset{length = 8, ragged = true, get = function(i)
  return F.arange(1 + i % 4):add(1), F.softmax(F.ones{1 + i % 4, 3}, 1) end}
padded.loss = nn.CrossEntropyLoss{class_dim = -1}
padded.data = {train = shares, collate = "pad"})");
  EXPECT_THAT(Fail("job(shares, nil, padded):train{pipe = 1}"),
              HasSubstr("fills targets up, which the loss CrossEntropyLoss would count"));
  Show(R"(
filled = 0
padded.loss = function(o, t) filled = filled + t:eq(-100):sum():item() return o:mean() end)");
  Show("job(shares, nil, padded):train{pipe = 1}");
  EXPECT_EQ(Show("filled > 0 and filled % 3 == 0"), "true") << "numbers, too";
  EXPECT_THAT(Fail("job(ragged, nil, {layers = {nn.Embedding{9, 3}}}):train{}"),
              HasSubstr("collate=\"pad\" makes batches of such samples"));
  EXPECT_THAT(Fail("job(data.images{{4}, classes = 3}, nil, {data = {train = data.images{{4}}, "
                   "collate = 'pad'}})"),
              HasSubstr("collate"));
}

constexpr char kPacked[] = R"(
documents = strata.dataset{length = 40, ragged = true, get = function(i)
  local length = 1 + i * 7 % 11
  return F.arange(length):add(i):remainder(9), F.arange(length):mul(i):remainder(9) end}
Positions = strata.layer{name = "Positions",
  init = function(self) self.weight = self:parameter{16, 8, init = function(w) w:normal_(0, 0.5) end} end,
  forward = function(self, x) return x + F.embedding(strata.positions(x), self.weight) end}
Attend = strata.layer{name = "Attend",
  init = function(self) self.qkv = nn.Linear{8, 24} end,
  forward = function(self, x)
    local q, k, v = unpack(self.qkv(x):unsqueeze(1):chunk(3, -1))
    return x + F.scaled_dot_product_attention(q, k, v, {is_causal = true}):squeeze(1)
  end}
function packed(train, more)
  local keys = {layers = {strata.documents{}, nn.Embedding{9, 8}, Positions{}, Attend{},
                          nn.TransformerEncoderLayer{8, 2, batch_first = true, dim_feedforward = 8, causal = true},
                          nn.Linear{8, 9}},
                loss = nn.CrossEntropyLoss{class_dim = -1}, data = {train = train}}
  for name, value in pairs(more or {}) do keys[name] = value end
  return job(train, nil, keys)
end
)";

/// Packed data trains the same whatever the plan: functions of the script see documents as our
/// layers do.
TEST_F(DatasetsTest, PackedDocumentsTrainTheSameUnderEveryPlan) {
  Show(kPacked);
  const std::string alone = Show("losses(packed(documents:pack{16}), {pipe = 1})");
  EXPECT_THAT(alone, HasSubstr(" "));
  EXPECT_EQ(Show("losses(packed(documents:pack{16}), {pipe = 2})"), alone);
  EXPECT_EQ(Show("losses(packed(documents:pack{16}), {pipe = 3, schedule = 'gpipe'})"), alone);
  EXPECT_EQ(Show("losses(packed(documents:cache{}:pack{16}), {pipe = 1})"), alone);
  EXPECT_NE(Show("losses(packed(documents:pack{16, seed = 1}), {pipe = 1})"), alone);
  // One document a row is what attention without documents sees.
  Show(
      "rows = strata.dataset{length = 8, get = function(i) "
      "return F.arange(16):add(i):remainder(9), F.arange(16):mul(i):remainder(9) end}");
  EXPECT_EQ(Show("losses(packed(rows:pack{16}:shuffle(3), {epochs = 1}), {pipe = 2})"),
            Show("losses(packed(rows:pack{16}:shuffle(3), {epochs = 1}), {pipe = 1})"));
}

/// A job with packed data generates texts, which are not packed, token by token.
TEST_F(DatasetsTest, PackedDocumentsMakeALanguageModel) {
  Show(kPacked);
  Show(
      "e = packed(documents:pack{16}, {layers = {strata.documents{}, nn.Embedding{9, 8}, "
      "Positions{}, "
      "nn.GroupedQueryAttention{8, 2}, nn.Linear{8, 9}}}):start{pipe = 2}");
  Show(
      "function say(keep) return e:generate('1 2 3', {tokenizer = 'numbers', stream = false, "
      "tokens = 6, keep = keep}) end");
  EXPECT_EQ(Show("say(true):match('^1 2 3 %d %d %d %d %d %d$') ~= nil"), "true");
  EXPECT_EQ(Show("say(true) == say(false)"), "true");
}

/// A training that goes on in the middle of an epoch reads the rows that come next.
TEST_F(DatasetsTest, PackedDocumentsResumeInTheMiddleOfAnEpoch) {
  const ScriptFolder folder;
  Show(kPacked);
  Show(Str("function saved(steps) return losses(packed(documents:pack{16}, {save = {dir = '",
           (folder.path() / "run").string(),
           "', every = 1}, resume = 'latest'}), {epochs = 'none', "
           "steps = steps}) end"));
  const std::string all = Show("losses(packed(documents:pack{16}), {epochs = 'none', steps = 7})");
  const std::string first = Show("saved(4)"), rest = Show("saved(7)");
  EXPECT_THAT(all, StartsWith(first.substr(0, first.size() - 1)));
  EXPECT_THAT(all, testing::EndsWith(rest.substr(1)));
}

TEST_F(DatasetsTest, PackedDocumentsNeedLayersThatKnowThem) {
  Show(kPacked);
  EXPECT_THAT(
      Fail("job(documents:pack{16}, nil, {layers = {nn.Embedding{9, 3}}, epochs = 1}):plan{}"),
      AllOf(HasSubstr("strata.documents{} as the first layer"),
            HasSubstr("layer 0 is Embedding(9, 3)")));
  EXPECT_THAT(
      Fail(
          "packed(documents:pack{16}, {layers = {nn.Embedding{9, 9}, strata.documents{}}}):plan{}"),
      HasSubstr("layer 1 documents() stands in front of all other layers"));
  EXPECT_THAT(Fail("packed(documents:pack{16}, {loss = nn.CrossEntropyLoss{class_dim = -1, "
                   "ignore_index = 0}}):plan{}"),
              HasSubstr("rows of packed data end with targets of -100"));
  EXPECT_THAT(Fail("packed(documents:pack{8}):plan{}"),
              HasSubstr("a row has length=8; long=\"split\""));
  const char* const layers =
      "packed(documents:pack{16}, {layers = {strata.documents{}, nn.Embedding{9, 9}, ";
  EXPECT_THAT(Fail(Str(layers, "function(x) return x + strata.position() end}}):train{pipe = 1}")),
              HasSubstr("strata.positions(x) gives the place of each token"));
  EXPECT_THAT(
      Fail(Str(layers, "function(x) return x:cumsum(1) end}}):train{pipe = 1}")),
      AllOf(HasSubstr("prompt["), HasSubstr("does not treat the documents of packed rows")));
  EXPECT_THAT(
      Fail("job(data.tokens{9, length = 4, samples = 8}, nil, {layers = {strata.documents{}, "
           "nn.Embedding{5, 9}}}):plan{}"),
      HasSubstr("gives 9 different tokens, but layer 1 Embedding(5, 9) has 5 rows"));
  EXPECT_EQ(Show("strata.positions(F.ones{2, 3, 4}):tolist()"), "{{0, 1, 2}}");
  const ScriptFolder folder;
  const std::string texts = folder.Write("a.jsonl", "{\"text\": \"abc\"}\n{\"text\": \"de\"}\n");
  EXPECT_THAT(Fail(Str("packed(data.jsonl{'", texts, "'}:take(2):pack{3}):plan{pipe = 1}")),
              HasSubstr("the labels of strata.data.pack are 0 to 255"))
      << "the source needs no length of its own";
  EXPECT_THAT(Fail("strata.positions(F.ones{3})"), HasSubstr("expects a tensor (N, T, ...)"));
}

/// The probe follows the tokens where functions turn (N, T, C) into (N, C, T), also if T = C.
TEST_F(DatasetsTest, PackedDocumentsAreProbedBetweenTurns) {
  Show(kPacked);
  Show(R"(function turned(width, kernel, padding)
  local turn = function(x) return x:transpose(1, 2) end
  local layers = {strata.documents{}, nn.Embedding{9, width}, turn,
                  nn.Conv1d{width, width, kernel, padding = padding}, turn, nn.Linear{width, 9}}
  return packed(documents:pack{16}, {layers = layers}):train{pipe = 1}
end)");
  for (const int width : {8, 16}) {
    Show(Str("turned(", width, ", 1, 0)"));
    EXPECT_THAT(Fail(Str("turned(", width, ", 3, 1)")),
                AllOf(HasSubstr("layer 3 Conv1d"), HasSubstr("does not treat the documents")))
        << width;
  }
}

/// The second output of a decoder's first part has no rows.
TEST_F(DatasetsTest, PackedDocumentsPassACutInADecoder) {
  Show(kPacked);
  Show(R"(function decoder(cuts, pipe)
  local decode = nn.TransformerDecoderLayer{8, 2, batch_first = true, dim_feedforward = 8, causal = true}
  local layers = {strata.documents{}, nn.Embedding{9, 8}, function(x) return x, x end, decode, nn.Linear{8, 9}}
  return losses(packed(documents:pack{16}, {layers = layers, partition = cuts}), {pipe = pipe})
end)");
  EXPECT_EQ(Show("decoder({0, 3.1, 5}, 2)"), Show("decoder({0, 5}, 1)"));
}

TEST_F(DatasetsTest, TensorsInFiles) {
  const ScriptFolder folder;
  const std::string npy = (folder.path() / "x.npy").string();
  const std::string many = (folder.path() / "x.safetensors").string();
  Show(Str("x = F.arange(6):view(2, 3); strata.tensors.save('", npy, "', x:t())"));
  EXPECT_EQ(Show(Str("y = strata.tensors.load('", npy, "'); return y == x:t(), y.dtype")),
            "true\n\"int64\"");
  EXPECT_EQ(Show(Str("y:add_(1); return strata.tensors.load('", npy, "') == x:t()")), "true")
      << "writing to it leaves the file";
  Show(Str("strata.tensors.save('", many, "', {a = x, ['b.c'] = x:float()})"));
  EXPECT_EQ(Show(Str("z = strata.tensors.load('", many, "'); return z.a == x, z['b.c'].dtype")),
            "true\n\"float32\"");
  EXPECT_THAT(Fail(Str("strata.tensors.save('", many, "', x)")), HasSubstr("must end in .npy"));
  EXPECT_THAT(Fail(Str("strata.tensors.save('", npy, "', {x})")),
              HasSubstr("a table of tensors by name"));
  EXPECT_THAT(Fail("strata.tensors.load('none.npy')"), HasSubstr("none.npy (an array of"));
  EXPECT_THAT(Fail("strata.tensors.laod('x')"), HasSubstr("did you mean \"load\"?"));
  const std::string text = folder.Write("notes.npy", "my notes");
  EXPECT_THAT(Fail(Str("strata.tensors.save('", text, "', x)")),
              HasSubstr("so it is not replaced"));
}

/// Relative paths refer to the folder of the script that made the data, whichever job reads it.
TEST_F(DatasetsTest, DataKeepsItsFolderInTheJobOfAnother) {
  const ScriptFolder folder;
  folder.Write("main/c.csv", "a,y\n1,2\n3,4\n5,6\n7,8\n");
  folder.Write("main/other.csv", "a,y\n1,2\n3,4\n");
  folder.Write("main/sub/c.csv", "a,y\n1,2\n");
  folder.Write("main/sub/job.lua", R"(
    local strata = require "strata"
    local options = strata.options{read = ""}
    if options.read ~= "" then print(#strata.data.csv{options.read}) end
    return strata.job{
      layers = {strata.nn.Linear{1, 1}}, loss = strata.nn.MSELoss{}, data = strata.data.csv{"c.csv"},
      batch = {micro_batches = 1, micro_batch_size = 1}, device = "cpu", threads = 1,
      transport = "threads",
    }
  )");
  const auto printed = [&](const std::string& text) -> std::string {
    const std::string script =
        folder.Write("main/main.lua", "local strata = require 'strata'\n" + text);
    printed_.clear();
    try {
      State(Options()).RunFile(script);
    } catch (const ConfigError& error) {
      return error.what();
    }
    return printed_;
  };
  const std::string own = "local d = strata.data.csv{'c.csv', like = 'c.csv'}\n";
  EXPECT_EQ(printed("print(#strata.load('sub/job.lua'):train{})"), "1\n");
  EXPECT_EQ(printed(own + "print(#strata.load('sub/job.lua', {data = {train = d}}):train{})"),
            "4\n");
  EXPECT_EQ(printed(own + "print(#strata.load('sub/job.lua'):train{data = d:take(3):concat(d)})"),
            "7\n");
  EXPECT_EQ(printed(own + "print(d.options.path, strata.load('sub/job.lua', {data = d}).train_data"
                          ".options.path:match('main/c.csv$'))"),
            "c.csv\tmain/c.csv\n");
  // Data that was not passed stays unreadable, and so does data that the passing script may not
  // read.
  EXPECT_THAT(printed(own + "strata.load('sub/job.lua', {data = d, read = '../other.csv'})"),
              HasSubstr("--allow_read=DIR"));
  folder.Write("secret.csv", "a,y\n1,2\n");
  EXPECT_THAT(printed("strata.load('sub/job.lua', {data = strata.data.csv{'../secret.csv'}})"),
              HasSubstr("--allow_read=DIR"));
}

TEST_F(DatasetsTest, ScriptsReadWhereTheyMay) {
  const ScriptFolder folder;
  folder.Write("other/x.txt", "text");
  const std::string script = folder.Write("own/a.lua", R"(
    local strata = require "strata"
    local options = strata.options{file = ""}
    strata.read(options.file == "" and arg[1] or options.file)
    strata.tensors.save("b.npy", strata.F.ones{2})
    strata.tensors.load("b.npy")
  )");
  std::filesystem::create_symlink(folder.path() / "other", folder.path() / "own/link");
  const std::string other = (folder.path() / "other/x.txt").string();
  const auto error_of = [&](StateOptions options) -> std::string {
    try {
      State(std::move(options)).RunFile(script);
    } catch (const ConfigError& error) {
      return error.what();
    }
    return "";
  };
  StateOptions options = Options();
  options.arguments = {script, "link/x.txt"};
  EXPECT_EQ(error_of(options), "") << "links work";
  options.arguments = {script, other};
  EXPECT_EQ(error_of(options), "") << "the command line names it";
  options.arguments = {script, "--file=" + other};
  EXPECT_EQ(error_of(options), "") << "an option names it";
  options.arguments = {script, (folder.path() / "other/../other/x.txt").string()};
  EXPECT_EQ(error_of(options), "");
  options.arguments = {script, "../other/x.txt"};
  EXPECT_THAT(error_of(options), HasSubstr("--allow_read=DIR"));
  const std::string fixed = folder.Write("own/b.lua", Str("require 'strata'.read('", other, "')"));
  const auto read_fixed = [&](std::vector<std::string> allowed) -> std::string {
    StateOptions more = Options();
    more.allow_read = std::move(allowed);
    more.arguments = {fixed};
    try {
      State(std::move(more)).RunFile(fixed);
    } catch (const ConfigError& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_THAT(read_fixed({}), AllOf(HasSubstr("b.lua:1:"), HasSubstr("--allow_read=DIR")));
  EXPECT_EQ(read_fixed({(folder.path() / "other").string()}), "");
  EXPECT_THAT(read_fixed({(folder.path() / "oth").string()}), HasSubstr("--allow_read=DIR"))
      << "a folder's name is no beginning of another's";
}

TEST_F(DatasetsTest, OnlyTypedLinesWriteAnywhere) {
  const ScriptFolder folder;
  state().RunFile(folder.Write("own/a.lua", R"(local strata = require "strata"
    function keep(path) strata.tensors.save(path, strata.F.ones{2}) end
    function kept(x)
      if x:sum():item() ~= 0 then keep("../x.npy") end -- planning has zeros
      return x
    end
    function twice(x, y) return x:mul(2), y end
  )"));
  const std::string outside = (folder.path() / "x.npy").string();
  EXPECT_THAT(Fail(Str("keep('", outside, "')")),
              AllOf(HasSubstr("a.lua:2: "), HasSubstr("below the script's folder"),
                    HasSubstr(Str("not \"", outside, "\""))));
  EXPECT_THAT(Fail("job(own, nil, {layers = {kept, nn.Linear{4, 3}}}):train{}"),
              HasSubstr("below the script's folder"));
  EXPECT_FALSE(std::filesystem::exists(outside));
  Show("keep('x.npy')");
  EXPECT_TRUE(std::filesystem::exists(folder.path() / "own/x.npy"));
  Show(Str("strata.tensors.save('", outside, "', own:map(twice)[0][1])"));
  EXPECT_TRUE(std::filesystem::exists(outside)) << "the script's function has returned";
}

}  // namespace
}  // namespace strata::lua
