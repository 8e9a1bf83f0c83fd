// The catalog contains everything that the library contains.
#include "lua/prompt/catalog.h"

#include <set>

#include "engine/job/data_source.h"
#include "engine/job/job_fields.h"
#include "engine/layers/layer_types.h"
#include "lua/testing.h"

namespace strata::lua {
namespace {

using testing::HasSubstr;
using testing::IsSupersetOf;

class CatalogTest : public StateTest {
 protected:
  const Value catalog = Catalog(state());

  std::set<std::string> Names(const Value& list) const {
    std::set<std::string> names;
    for (const Value& entry : list.as_list()) names.insert(entry["name"].as_string());
    return names;
  }
  /// The entry of this name in a list.
  Value Entry(const Value& list, const std::string& name) const {
    for (const Value& entry : list.as_list()) {
      if (entry["name"] == Value(name)) return entry;
    }
    ADD_FAILURE() << "no " << name;
    return {};
  }
};

TEST_F(CatalogTest, HasEveryLayerSourceAndStep) {
  EXPECT_EQ(catalog["layers"].as_list().size(), LayerTypes().size());
  EXPECT_EQ(catalog["sources"].as_list().size(), DataSourceTypes().size());
  EXPECT_EQ(catalog["steps"].as_list().size(), DataStepTypes().size());
  const Value conv = Entry(catalog["layers"], "nn.Conv2d");
  EXPECT_THAT(conv["call"].as_string(), HasSubstr("nn.Conv2d{in_channels"));
  EXPECT_EQ(Entry(conv["fields"], "bias")["default"], Value("true"));
}

TEST_F(CatalogTest, HasEveryKeyWithItsTables) {
  const Value optimizer = Entry(catalog["keys"], "optimizer");
  EXPECT_EQ(optimizer["tables"].as_list().size(), OptimizerTypes().size());
  const Value device = Entry(catalog["keys"], "device");
  EXPECT_EQ(device["choices"].ToJson(), R"(["cuda","cpu"])");
  EXPECT_EQ(device["default"], Value("none"));
}

TEST_F(CatalogTest, HasEveryFunctionAndTheTypesThatTheyGive) {
  std::set<std::string> functions = Names(catalog["functions"]);
  for (const std::string& name : state().Complete("strata.").candidates) {
    const std::string kind = Show("type(strata." + name + ")");
    if (kind != "\"function\"") continue;
    EXPECT_TRUE(functions.contains("strata." + name)) << name;
  }
  EXPECT_THAT(Names(catalog["types"]),
              IsSupersetOf({"job", "plan", "engine", "program", "topology", "layer", "dataset"}));
  const Value job = Entry(catalog["types"], "job");
  EXPECT_EQ(Entry(job["methods"], "job:plan")["gives"], Value("plan"));
  for (const Value& type : catalog["types"].as_list()) {
    for (const char* kind : {"methods", "properties"}) {
      for (const Value& member : type[kind].as_list()) {
        EXPECT_THAT(member["help"].as_string(), HasSubstr(": ")) << member["name"].as_string();
      }
    }
  }
}

}  // namespace
}  // namespace strata::lua
