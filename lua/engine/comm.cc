// strata.comm: collectives and messages among ranks. Before each call the ranks exchange a short
// text, its signature. If the texts differ, every rank throws an error, where otherwise the ranks
// would hang or compute nonsense.
#include "lua/engine/comm.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <limits>
#include <memory>
#include <optional>
#include <string_view>
#include <utility>

#include "engine/base/error.h"
#include "engine/base/fields/fields.h"
#include "engine/base/machine/gpu.h"
#include "engine/base/text.h"
#include "engine/comm/current.h"
#include "engine/comm/group.h"
#include "engine/comm/meeting/discovery.h"
#include "engine/comm/transports/make_transport.h"
#include "engine/comm/transports/thread_transport.h"
#include "engine/layers/axis/axis_scope.h"
#include "engine/layers/axis/crossing.h"
#include "lua/core/arguments.h"
#include "lua/core/bind.h"
#include "lua/core/core.h"
#include "lua/tensors/model.h"
#include "lua/tensors/tensor_object.h"
#include "lua/tensors/tensors.h"

namespace strata::lua {
namespace {

using Kind = Collective::Kind;

/// A collective that may still be running, and its result.
struct Handle {
  std::shared_ptr<Pending> pending;  ///< null if the rank is alone, so the result is there
  at::Tensor result;
};

}  // namespace

template <>
struct TypeOf<Handle> {
  static const ObjectType& Get();
};

namespace {

/// The transport of this process that strata.comm.init made; null before that.
std::unique_ptr<Transport>& OwnTransport() {
  static std::unique_ptr<Transport> transport;
  return transport;
}

Transport* FindTransport() {
  Transport* current = CurrentTransport();
  return current ? current : OwnTransport().get();
}

Transport& RequireTransport() {
  if (Transport* transport = FindTransport()) return *transport;
  throw ConfigError(
      "strata.comm works in a job's functions while it trains; a script that runs by "
      "itself calls strata.comm.init{} first");
}

std::string AxisOf(const Value& options) {
  const Value& name = options["group"].is_null() ? options["axis"] : options["group"];
  return name.as_string();
}

/// The ranks of the axis that the options name; null if this rank is alone on it.
Group* GroupOf(const Value& options) {
  return IsPlanning() ? nullptr : RequireTransport().FindGroup(AxisOf(options));
}

bool IsOverNccl() { return std::string_view(RequireTransport().name()) == "nccl"; }

/// The group of the same ranks for tensors on the device of `input`, which is undefined for a
/// barrier.
Group* GroupFor(const at::Tensor& input, const Value& options, const std::string& subject) {
  Group* group = GroupOf(options);
  if (!group) return nullptr;
  const bool on_gpu = input.defined() && input.is_cuda();
  if (on_gpu && std::string_view(RequireTransport().name()) == "gloo") {
    throw ConfigError(
        Str(subject, " over gloo takes tensors in the host's memory, got ", DescribeTensor(input)));
  }
  if (on_gpu || !IsOverNccl()) return group;
  Group* on_host = RequireTransport().FindHostGroup(AxisOf(options));
  if (on_host || !input.defined()) return on_host ? on_host : group;
  throw ConfigError(Str(subject, " over nccl takes tensors on the GPU, got ", DescribeTensor(input),
                        "; in a script of its own, strata.comm.init{backend=\"both\"} opens gloo "
                        "for the others"));
}

/// Waits for other ranks, and meanwhile lets other threads run Lua.
template <class Wait>
void WaitUnlocked(lua_State* L, const Wait& wait) {
  const Unlocked unlocked(State::Of(L));
  wait();
}

const std::vector<std::string>& AxisNames() {
  static const std::vector<std::string> names = {"world", "pipe", "data", "model", "replica"};
  return names;
}

Field AxisField() {
  return Field::Choice("axis", AxisNames(), "which ranks take part").Default("world");
}

Field GroupField() {
  return Field::Choice("group", AxisNames(), "another word for axis").Optional();
}

const FieldTable& OptionFields() {
  static const FieldTable fields = {
      AxisField(), GroupField(),
      Field::Choice("op", {"sum", "avg", "min", "max", "product"}, "how values are combined")
          .Default("sum"),
      Field::Int("root", "who sends, counted within the axis").AtLeast(0).Default(0),
      Field::Bool("async", "gives a handle at once").Default(false)};
  return fields;
}

Value Options(lua_State* L, int index, const std::string& subject, const FieldTable& fields) {
  const Value given = ToValue(L, index, "the options");
  if (CallOf(given).positional.empty()) return OptionsOf(given, fields, subject);
  throw ConfigError(Str(subject, " takes options by name, such as {axis=\"data\"}"));
}

ReduceOp OpOf(const std::string& name) {
  constexpr std::array kNames = {"sum", "avg", "min", "max", "product"};
  const auto found = std::ranges::find(kNames, name);
  return static_cast<ReduceOp>(found - kNames.begin());
}

/// The length in bytes of a signature, the text on which all ranks of a call must agree.
constexpr int64_t kSignatureBytes = 128;

at::Tensor SignatureOf(const std::string& text, bool on_gpu) {
  at::Tensor bytes = at::empty({kSignatureBytes}, at::kByte);
  std::memset(bytes.data_ptr(), 0, kSignatureBytes);
  std::memcpy(bytes.data_ptr(), text.data(), std::min<size_t>(text.size(), kSignatureBytes));
  return on_gpu ? bytes.to(at::kCUDA) : bytes;
}

/// The text of the signature that begins at `offset`.
std::string TextOf(const at::Tensor& signatures, int64_t offset = 0) {
  const at::Tensor bytes = signatures.cpu();
  const char* text = static_cast<const char*>(bytes.const_data_ptr()) + offset;
  return {text, strnlen(text, kSignatureBytes)};
}

/// Throws ConfigError unless the rank's signature is the expected one, up to kSignatureBytes.
/// `mine` says in the error what this rank does.
void CompareCalls(const std::string& expected, const std::string& mine, int rank,
                  const std::string& theirs) {
  if (theirs == expected.substr(0, kSignatureBytes)) return;
  throw ConfigError(Str("the ranks make different calls of strata.comm: this one ", mine, ", rank ",
                        rank, " ", theirs));
}

/// Throws ConfigError if the ranks of the group do not all make the same call. Without this check
/// they would hang or compute nonsense.
void Agree(Group& group, const std::string& signature, bool on_gpu) {
  const at::Tensor mine = SignatureOf(signature, on_gpu);
  at::Tensor all = at::empty({group.size() * kSignatureBytes}, mine.options());
  group.AllGather(mine, all);
  all = all.cpu();
  for (int place = 0; place < group.size(); ++place) {
    CompareCalls(signature, signature, group.spec().ranks[place],
                 TextOf(all, place * kSignatureBytes));
  }
}

/// Allocates the result: of the input's size, or of the size that the collective gives.
at::Tensor MakeOutput(Kind kind, const at::Tensor& input, int size) {
  std::vector<int64_t> shape = input.sizes().vec();
  const bool cuts = kind == Kind::kReduceScatter || kind == Kind::kAllToAll;
  if ((cuts || kind == Kind::kAllGather) && shape.empty()) {
    throw ConfigError(Str("strata.comm.", CollectiveName(kind), " needs a tensor with a dim 0"));
  }
  if (cuts && shape[0] % size != 0) {
    throw ConfigError(Str("strata.comm.", CollectiveName(kind), ": dim 0 of ",
                          DescribeTensor(input), " cannot be cut in ", size, " equal parts"));
  }
  if (kind == Kind::kAllGather) shape[0] *= size;
  if (kind == Kind::kReduceScatter) shape[0] /= size;
  return at::empty(shape, input.options());
}

bool WantsGradient(const at::Tensor& input) {
  return input.requires_grad() && at::GradMode::is_enabled();
}

/// The crossing that does the same as a collective of the model axis; nothing if there is none.
std::optional<Crossing> CrossingOf(Kind kind) {
  switch (kind) {
    case Kind::kAllReduce:
      return Crossing::kReduce;
    case Kind::kAllGather:
      return Crossing::kGather;
    case Kind::kReduceScatter:
      return Crossing::kReduceScatter;
    default:
      return std::nullopt;
  }
}

/// Runs a collective with a gradient.
at::Tensor RunCrossing(lua_State* L, Kind kind, const at::Tensor& input, const Value& options,
                       const std::string& subject) {
  const std::optional<Crossing> how = CrossingOf(kind);
  const bool fits = how && AxisOf(options) == "model" && options["op"].as_string() == "sum" &&
                    !options["async"].as_bool();
  if (!fits) {
    throw ConfigError(Str(subject,
                          " has no gradient but for the sums, gathers and reduce-scatters of "
                          "axis=\"model\"; give it x:detach(), or call it within "
                          "strata.no_grad"));
  }
  if (GroupOf(options) && !CurrentAxis()) {
    throw ConfigError(Str(subject, " has a gradient only in layers and losses"));
  }
  return CrossUnlocked(L, input, *how, 0);
}

int PushResult(lua_State* L, Handle handle, bool async) {
  if (async) {
    PushObject(L, std::make_shared<Handle>(std::move(handle)));
  } else {
    PushTensor(L, std::move(handle.result));
  }
  return 1;
}

int RunCollective(lua_State* L, Kind kind) {
  const std::string subject = Str("strata.comm.", CollectiveName(kind));
  const bool has_tensor = kind != Kind::kBarrier;
  const at::Tensor given = has_tensor ? TensorArgument(L, 1, "a tensor") : at::Tensor();
  const Value options = Options(L, has_tensor ? 2 : 1, subject, OptionFields());
  if (has_tensor && WantsGradient(given)) {
    PushTensor(L, RunCrossing(L, kind, given, options, subject));
    return 1;
  }
  const at::Tensor input = has_tensor ? given.detach().contiguous() : at::Tensor();
  Group* group = GroupFor(input, options, subject);
  Collective collective{.kind = kind,
                        .op = OpOf(options["op"].as_string()),
                        .root = static_cast<int>(options["root"].as_int()),
                        .input = input,
                        .output = {},
                        .bounds = {}};
  const int size = group ? group->size() : 1;
  if (collective.root >= size) {
    throw ConfigError(
        Str(subject, ": root is ", collective.root, ", the axis has ", Plural(size, "rank")));
  }
  Handle handle;
  if (has_tensor) handle.result = collective.output = MakeOutput(kind, input, size);
  if (group) {
    const bool on_gpu = IsOverNccl() && group == GroupOf(options);
    const std::string call =
        Str(CollectiveName(kind), " ", options["op"].as_string(), " root ", collective.root, " of ",
            has_tensor ? DescribeTensor(input) : "nothing");
    CheckCollective(collective, size);
    WaitUnlocked(L, [&] {
      Agree(*group, call, on_gpu);
      handle.pending = group->Start(collective);
      if (!options["async"].as_bool()) handle.pending->Wait();
    });
  } else if (has_tensor) {
    handle.result.copy_(input);
  }
  if (!has_tensor) return 0;
  return PushResult(L, std::move(handle), options["async"].as_bool());
}

template <Kind kKind>
int RunKind(lua_State* L) {
  return RunCollective(L, kKind);
}

const FieldTable& MessageFields(Kind kind) {
  const auto make = [](const char* peer, const char* what) {
    return FieldTable{AxisField(), GroupField(), Field::Int(peer, what).AtLeast(0),
                      Field::Bool("async", "gives a handle at once").Default(false)};
  };
  static const FieldTable send = make("to", "who receives, counted within the axis");
  static const FieldTable recv = make("from", "who sends, counted within the axis");
  return kind == Kind::kSend ? send : recv;
}

/// The rank at the other end of a message, as an index on the axis. Throws ConfigError if the axis
/// has no such rank, or if it is this rank.
int PeerOf(const Value& options, const char* name, const Group* group, const std::string& subject) {
  const int peer = static_cast<int>(options[name].as_int());
  const int size = group ? group->size() : 1;
  if (peer < size && group && peer != group->place()) return peer;
  const std::string why =
      peer < size ? "that is this rank itself" : Str("the axis has ", Plural(size, "rank"));
  throw ConfigError(Str(subject, ": ", name, " is ", peer, ", ", why));
}

std::string SignatureOfSend(const at::Tensor& tensor) { return "send " + DescribeTensor(tensor); }

/// Sends the signature of a message before the message. The receiver throws if it expects another
/// one, instead of hanging or reading nonsense.
void Announce(Group& group, int peer, const at::Tensor& tensor, bool on_gpu) {
  const at::Tensor text = SignatureOf(SignatureOfSend(tensor), on_gpu);
  group.Start({.kind = Kind::kSend, .root = peer, .input = text, .output = text, .bounds = {}});
}

void Expect(Group& group, int peer, const at::Tensor& tensor, bool on_gpu) {
  const at::Tensor theirs = SignatureOf("", on_gpu);
  group.Recv(theirs, peer);
  const std::string expected = SignatureOfSend(tensor);
  CompareCalls(expected, "expects " + expected, group.spec().ranks[static_cast<size_t>(peer)],
               TextOf(theirs));
}

/// strata.comm.send(x, {to=}), and strata.comm.recv(like, {from=}), which returns a new tensor.
template <Kind kKind>
int RunMessage(lua_State* L) {
  constexpr bool kSends = kKind == Kind::kSend;
  const std::string subject = Str("strata.comm.", CollectiveName(kKind));
  const at::Tensor given = TensorArgument(L, 1, kSends ? "a tensor" : "a tensor like the message");
  const Value options = Options(L, 2, subject, MessageFields(kKind));
  if (kSends && WantsGradient(given)) {
    throw ConfigError(Str(subject, " has no gradient; give it x:detach()"));
  }
  const at::Tensor input = given.detach().contiguous();
  const at::Tensor tensor = kSends ? input : at::empty_like(input);
  Group* group = GroupFor(input, options, subject);
  Handle handle{.pending = nullptr, .result = tensor};
  if (IsPlanning()) {
    if (!kSends) tensor.copy_(input);
  } else {
    const int peer = PeerOf(options, kSends ? "to" : "from", group, subject);
    const bool on_gpu = IsOverNccl() && group == GroupOf(options);
    WaitUnlocked(L, [&] {
      (kSends ? Announce : Expect)(*group, peer, tensor, on_gpu);
      handle.pending = group->Start(
          {.kind = kKind, .root = peer, .input = tensor, .output = tensor, .bounds = {}});
      if (!options["async"].as_bool()) handle.pending->Wait();
    });
  }
  const bool async = options["async"].as_bool();
  return kSends && !async ? 0 : PushResult(L, std::move(handle), async);
}

std::optional<at::Tensor> WaitForHandle(lua_State* L, Handle& handle) {
  double seconds = std::numeric_limits<double>::infinity();
  if (!lua_isnoneornil(L, 2)) {
    if (lua_type(L, 2) != LUA_TNUMBER || !(lua_tonumber(L, 2) >= 0)) {
      ThrowExpected(L, 2, "a number of seconds");
    }
    seconds = lua_tonumber(L, 2);
  }
  bool there = true;
  if (const std::shared_ptr<Pending> pending = handle.pending) {
    WaitUnlocked(L, [&] { there = pending->Wait(seconds); });
  }
  return there ? std::optional(handle.result) : std::nullopt;
}

bool IsDone(const Handle& handle) { return !handle.pending || handle.pending->done(); }

std::string ShowHandle(const Handle& handle) {
  return Str("collective of ", DescribeTensor(handle.result));
}

const FieldTable& AxisOptions() {
  static const FieldTable fields = {AxisField(), GroupField()};
  return fields;
}

int Rank(lua_State* L) {
  const Group* group = GroupOf(Options(L, 1, "strata.comm.rank", AxisOptions()));
  return group ? group->place() : 0;
}

int Size(lua_State* L) {
  const Group* group = GroupOf(Options(L, 1, "strata.comm.size", AxisOptions()));
  return group ? group->size() : 1;
}

/// The name that torch.distributed uses for both backends.
constexpr const char* kBothBackends = "cpu:gloo,cuda:nccl";

const FieldTable& InitFields() {
  static const FieldTable fields = {
      Field::Choice("backend", {"gloo", "nccl", "both", kBothBackends},
                    "of tensors in the host's memory, on the GPU, or both; none = nccl where there "
                    "is a GPU for each process")
          .Optional(),
      Field::Number("timeout", "until all must have met, seconds").Above(0).Default(1800.0),
      Field::String("init_method", "env://, tcp://HOST:PORT or file://PATH").Default("env://"),
      Field::Int("rank", "of this process").AtLeast(0).Optional(),
      Field::Int("world_size", "number of processes").AtLeast(1).Optional(),
      Field::Int("port", "of the store").AtLeast(0).AtMost(65535).Default(29500),
      Field::Bool("discover", "reads other launchers' variables than torchrun's").Default(true),
      Field::Bool("verbose", "prints on stderr what was found").Default(false)};
  return fields;
}

/// The name of the transport, which is equal on all processes of a machine. Throws ConfigError if
/// it needs more GPUs than there are.
std::string BackendOf(const Value& given, const RankPlace& place) {
  const bool gpu_each = HasGpuEach(place.local_world_size);
  if (given.is_null()) return gpu_each ? "nccl" : "gloo";
  const std::string backend = given.as_string() == kBothBackends ? "both" : given.as_string();
  if (backend == "gloo" || gpu_each) return backend;
  throw ConfigError(Str("strata.comm.init: backend \"", given.as_string(),
                        "\" needs a GPU for each process of a machine; here are ",
                        Plural(place.local_world_size, "process"), " and ",
                        Plural(GpuCount(), "GPU"), "; use backend=\"gloo\""));
}

std::unique_ptr<Transport> Meet(const Value& options) {
  InitOptions init;
  init.init_method = options["init_method"].as_string();
  if (!options["rank"].is_null()) init.rank = static_cast<int>(options["rank"].as_int());
  if (!options["world_size"].is_null()) {
    init.world_size = static_cast<int>(options["world_size"].as_int());
  }
  init.port = static_cast<int>(options["port"].as_int());
  init.discover = options["discover"].as_bool();
  const RankPlace place = PlaceFromInit(init, ProcessEnvironment());
  if (options["verbose"].as_bool()) {
    std::fprintf(stderr, "strata.comm: rank %d of %d, %d of %d on this machine, meets at %s:%d\n",
                 place.rank, place.world_size, place.local_rank, place.local_world_size,
                 place.store_host.c_str(), place.store_port);
  }
  const std::string backend = BackendOf(options["backend"], place);
  if (place.world_size == 1) return std::move(MakeThreadTransports(1, {})[0]);
  GroupSpec world = {"world", {}};
  for (int rank = 0; rank < place.world_size; ++rank) world.ranks.push_back(rank);
  return MakeTransport(backend, place, {}, {world}, options["timeout"].as_double());
}

/// strata.comm.init{...} returns {rank=, world_size=, backend=}. A second call returns the same.
Value Init(lua_State* L) {
  const Value options = Options(L, 1, "strata.comm.init", InitFields());
  if (!FindTransport()) {
    std::unique_ptr<Transport> transport;
    WaitUnlocked(L, [&] { transport = Meet(options); });
    OwnTransport() = std::move(transport);
  }
  Transport& transport = *FindTransport();
  const bool both = IsOverNccl() && transport.FindHostGroup("world");
  Value place;
  place.Set("rank", transport.rank()).Set("world_size", transport.world_size());
  return place.Set("backend", both ? "both" : transport.name());
}

}  // namespace

const ObjectType& TypeOf<Handle>::Get() {
  static const ObjectType type{
      .name = "collective",
      .methods = {{"wait", Function<WaitForHandle>, "handle:wait([seconds]): the result"},
                  {"done", Function<IsDone>, "handle:done(): whether the result is there"}},
      .metamethods = {{"__tostring", Function<ShowHandle>}}};
  return type;
}

void OpenComm(lua_State* L) {
  lua_getfield(L, LUA_REGISTRYINDEX, kLibrary);
  lua_getfield(L, -1, "comm");
  const NamedFunction functions[] = {
      {"init", Function<Init>,
       "strata.comm.init{backend=, init_method=\"env://\", rank=, world_size=}: meets the other "
       "processes"},
      {"rank", Function<Rank>, "strata.comm.rank{axis=\"world\"}: this rank on the axis"},
      {"size", Function<Size>, "strata.comm.size{axis=\"world\"}: ranks of the axis"},
      {"all_reduce", Bound<RunKind<Kind::kAllReduce>>,
       "strata.comm.all_reduce(x, {axis=\"world\", op=\"sum\", async=false}): combined over the "
       "ranks"},
      {"broadcast", Bound<RunKind<Kind::kBroadcast>>,
       "strata.comm.broadcast(x, {axis=, root=0}): the root's x on all ranks"},
      {"all_gather", Bound<RunKind<Kind::kAllGather>>,
       "strata.comm.all_gather(x, {axis=}): all ranks' x, behind each other"},
      {"reduce_scatter", Bound<RunKind<Kind::kReduceScatter>>,
       "strata.comm.reduce_scatter(x, {axis=, op=\"sum\"}): the own part of the combination"},
      {"all_to_all", Bound<RunKind<Kind::kAllToAll>>,
       "strata.comm.all_to_all(x, {axis=}): part i goes to rank i"},
      {"barrier", Bound<RunKind<Kind::kBarrier>>,
       "strata.comm.barrier{axis=}: waits for all ranks"},
      {"send", Bound<RunMessage<Kind::kSend>>,
       "strata.comm.send(x, {to=, axis=\"world\", async=false}): x to one other rank"},
      {"recv", Bound<RunMessage<Kind::kRecv>>,
       "strata.comm.recv(like, {from=, axis=\"world\", async=false}): what that rank sends, of "
       "like's shape and dtype"}};
  SetFunctions(L, functions);
  RefuseUnknownNames(L, "strata.comm.");
  lua_pop(L, 2);
}

}  // namespace strata::lua
