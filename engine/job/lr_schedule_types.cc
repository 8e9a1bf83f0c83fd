// The tables of learning-rate schedules and of metrics: names, options and defaults.
// engine/job/lr_schedule.cc computes the factors of the schedules.
#include "engine/job/job_fields.h"

namespace strata {
namespace {

Field Steps(const char* help = "length of the decay in steps; none = the rest of the training") {
  return Field::Int("steps", help).AtLeast(1).Optional();
}

Field Final(const char* help = "factor at its end") {
  return Field::Number("final", help).AtLeast(0).Default(0.0);
}

Field Gamma() { return Field::Number("gamma", "factor of each drop").AtLeast(0).Default(0.1); }

FieldTable AfterWarmup(FieldTable fields) {
  fields.push_back(
      Field::Int("warmup", "steps of linear rise before").NamedOnly().AtLeast(0).Default(0));
  return fields;
}

/// PyTorch's OneCycleLR. Its max_lr is the optimizer's lr here.
FieldTable OneCycleFields() {
  return {
      Steps("length of the cycle in steps; none = the training"),
      Field::Number("pct_start", "share of the steps in which lr rises")
          .AtLeast(0)
          .AtMost(1)
          .Default(0.3),
      Field::Choice("anneal_strategy", {"cos", "linear"}, "how it rises and falls").Default("cos"),
      Field::Number("div_factor", "the peak over the first lr").Above(0).Default(25.0),
      Field::Number("final_div_factor", "the first lr over the last").Above(0).Default(1e4),
      Field::Bool("three_phase", "falls to the first lr as it rose, then to the last")
          .Default(false),
      Field::Bool("cycle_momentum", "momentum that goes the other way, as PyTorch's default does")
          .Default(false)
          .OnlyDefaultYet("a momentum that goes the other way")};
}

FieldTable RestartFields() {
  return {Field::Int("T_0", "steps of the first cycle").AtLeast(1),
          Field::Int("T_mult", "how many times longer each next cycle is").AtLeast(1).Default(1),
          Final("factor at a cycle's end")};
}

/// PyTorch's ReduceLROnPlateau. Its min_lr is min_factor here, a factor.
FieldTable PlateauFields() {
  return {
      Field::String("monitor", "what gets no better: test.loss, or test.NAME of a metric")
          .Default("test.loss"),
      Field::Choice("mode", {"min", "max"}, "none = max for metrics of which more is better")
          .Optional(),
      Field::Number("factor", "of each drop").AtLeast(0).Below(1).Default(0.1),
      Field::Int("patience",
                 "evaluations in a row without a better one that change nothing; the next one "
                 "lowers the learning rate")
          .AtLeast(0)
          .Default(10),
      Field::Number("threshold", "what counts as better").AtLeast(0).Default(1e-4),
      Field::Choice("threshold_mode", {"rel", "abs"},
                    "threshold is a share of the best, or a "
                    "difference")
          .Default("rel"),
      Field::Int("cooldown", "evaluations after a drop that count nothing").AtLeast(0).Default(0),
      Field::Number("min_factor", "the least factor").AtLeast(0).Default(0.0)};
}

Field Schedules(const char* help) { return Field::Any("schedules", help); }

Field Milestones(const char* help) { return Field::Shape("milestones", help).AtLeast(1); }

}  // namespace

const std::vector<OptionTable>& LrScheduleTypes() {
  static const std::vector<OptionTable> types = {
      {"constant", {}},
      {"warmup", {Field::Int("steps", "steps of linear rise to the full lr").AtLeast(1)}},
      {"linear", AfterWarmup({Steps(), Final()})},
      {"cosine", AfterWarmup({Steps(), Final()})},
      {"polynomial",
       AfterWarmup({Steps(), Field::Number("power", "of the way that is left").Default(1.0)})},
      {"step", AfterWarmup({Field::Int("every", "steps between two drops").AtLeast(1), Gamma()})},
      {"multi_step", AfterWarmup({Milestones("steps at which it drops, ascending"), Gamma()})},
      {"exponential", AfterWarmup({Field::Number("gamma", "factor of each step").AtLeast(0)})},
      {"cosine_restarts", AfterWarmup(RestartFields())},
      {"one_cycle", OneCycleFields()},
      {"plateau", AfterWarmup(PlateauFields())},
      {"chain", {Schedules("{{\"warmup\", steps=5}, ...}, whose factors are multiplied")}},
      {"sequence",
       {Schedules("{{\"warmup\", steps=5}, ...}, one after the other"),
        Milestones("steps at which each but the first begins, counting from 0")}},
  };
  return types;
}

const std::vector<std::pair<std::string, bool>>& MetricTypes() {
  static const std::vector<std::pair<std::string, bool>> types = {
      {"accuracy", true}, {"top5", true},        {"f1", true},       {"r2", true},
      {"mae", false},     {"perplexity", false}, {"confusion", true}};
  return types;
}

}  // namespace strata
