// Makes the jobs for workers on other machines, and reads them there.
#include "launcher/place/remote.h"

#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <random>

#include "engine/base/error.h"
#include "engine/base/machine/identity.h"
#include "engine/base/text.h"
#include "engine/comm/meeting/address.h"
#include "engine/comm/meeting/secret.h"
#include "launcher/version.h"

namespace strata::launcher {
namespace {

/// ssh must not ask questions, because there is no terminal to answer them, and it must notice a
/// broken network.
constexpr const char* kSsh =
    "ssh -T -o BatchMode=yes -o ConnectTimeout=10 -o ServerAliveInterval=5 "
    "-o ServerAliveCountMax=3";

/// Throws ConfigError for a path with characters that the remote shell would interpret.
void CheckProgram(const std::string& program) {
  const auto plain = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
           std::string_view("/._-+").find(c) != std::string_view::npos;
  };
  if (!program.empty() && program[0] != '-' && std::all_of(program.begin(), program.end(), plain)) {
    return;
  }
  throw ConfigError(
      Str("the path ", Value(program).ToJson(), " goes through a remote shell and may ",
          "hold letters, digits and /._-+ only; name another: --remote_program=PATH"));
}

std::string ThisProgram() { return std::filesystem::read_symlink("/proc/self/exe").string(); }

std::vector<std::string> Words(const std::string& text) {
  std::vector<std::string> words;
  for (std::string& word : Split(text, ' ')) {
    if (!word.empty()) words.push_back(std::move(word));
  }
  return words;
}

/// A random id of the job. With it, ranks of other jobs that connect to the same port are rejected.
std::string NewJobId() {
  std::random_device random;
  return Digest(Str(random(), " ", random(), " ", ::getpid()));
}

Value MapOf(const Environment& environment) {
  Value map = Value::MakeMap();
  for (const auto& [name, value] : environment) map.Set(name, value);
  return map;
}

Value ToValue(const std::vector<RankHost>& hosts) {
  Value::List list;
  for (const RankHost& host : hosts) {
    list.push_back(Value::MakeMap({{"name", host.name},
                                   {"ranks", host.ranks},
                                   {"speed", host.says.speed},
                                   {"memory", host.says.memory},
                                   {"where", host.where}}));
  }
  return list;
}

std::vector<RankHost> RankHostsOf(const Value& list) {
  std::vector<RankHost> hosts;
  for (const Value& value : list.as_list()) {
    hosts.push_back(
        {.name = value["name"].as_string(),
         .ranks = static_cast<int>(value["ranks"].as_int()),
         .says = {.speed = value["speed"].as_double(), .memory = value["memory"].as_int()},
         .where = value["where"].as_string()});
  }
  return hosts;
}

Value JobOf(const RankPlace& place, const std::vector<std::string>& arguments,
            const Environment& environment, const std::string& devices,
            const std::vector<RankHost>& hosts) {
  return Value::MakeMap({
      {"version", kVersion},
      {"starter", HostName()},
      {"arguments", Value::List(arguments.begin(), arguments.end())},
      {"folder", std::filesystem::current_path().string()},
      {"environment", MapOf(environment)},
      {"visible_devices", devices},
      {"rank", place.rank},
      {"world_size", place.world_size},
      {"ranks", place.local_world_size},
      {"store_host", place.store_host},
      {"job_id", place.job_id},
      {"secret", place.secret},
      {"hosts", ToValue(hosts)},
  });
}

int NumberOf(const Value& job, const char* name) { return static_cast<int>(job[name].as_int()); }

}  // namespace

FieldTable RemoteFields() {
  return {
      Field::String("ssh", "starts a program on another machine: SSH HOST PROGRAM ARGUMENT")
          .Default(kSsh),
      Field::String("remote_program", "strata on the other machines; none = the same path as here")
          .Optional(),
  };
}

Environment Forwarded(const Environment& environment) {
  constexpr const char* kPrefixes[] = {"NCCL_", "GLOO_", "UCX_",   "OMP_",
                                       "MKL_",  "KMP_",  "TORCH_", "STRATA_"};
  Environment forwarded;
  for (const auto& [name, value] : environment) {
    const bool goes = std::any_of(std::begin(kPrefixes), std::end(kPrefixes),
                                  [&, &name = name](const char* p) { return name.starts_with(p); });
    if (goes) forwarded.emplace(name, value);
  }
  return forwarded;
}

std::vector<RemoteHost> RemoteHosts(const Placement& placement,
                                    const std::vector<std::string>& arguments, const Value& flags,
                                    const Environment& environment) {
  const std::string here = ThisProgram(), name = HostName();
  const Value& remote = flags["remote_program"];
  const std::string there = remote.is_null() ? here : remote.as_string();
  CheckProgram(there);
  const std::vector<std::string> ssh = Words(flags["ssh"].as_string());
  if (ssh.empty()) throw ConfigError("--ssh names no program");
  const Environment forwarded = Forwarded(environment);
  RankPlace place = placement.first;
  place.job_id = NewJobId();
  place.secret = ToHex(RandomBytes(kSecretBytes));
  std::vector<RemoteHost> hosts;
  for (const Host& host : placement.hosts) {
    place.local_world_size = static_cast<int>(host.slots.size());
    const bool picked = !flags["include"].is_null() || !flags["exclude"].is_null();
    const std::string devices = picked ? Join(host.slots, ",") : "";
    std::vector<std::string> command = {here, "worker"};
    if (!IsThisMachine(host.name, name)) {
      command = ssh;
      command.insert(command.end(), {host.name, there, "worker"});
    }
    hosts.push_back(
        {host.name, command, JobOf(place, arguments, forwarded, devices, placement.rank_hosts)});
    place.rank += place.local_world_size;
  }
  return hosts;
}

Placement ApplyRemoteJob(const Value& job, int& store_port) {
  const std::string name = HostName();
  if (job["version"] != Value(kVersion)) {
    throw ConfigError(
        Str(name, " has strata ", kVersion, ", the launcher is ", job["version"].Describe()));
  }
  const std::string& folder = job["folder"].as_string();
  if (::chdir(folder.c_str()) != 0) {
    throw ConfigError(
        Str(name, " has no folder ", folder, "; the script must be there under the same path"));
  }
  for (const auto& [variable, value] : job["environment"].as_map()) {
    ::setenv(variable.c_str(), value.as_string().c_str(), 1);
  }
  const std::string& devices = job["visible_devices"].as_string();
  if (!devices.empty()) ::setenv("CUDA_VISIBLE_DEVICES", devices.c_str(), 1);
  Placement placement;
  placement.launcher = "strata on " + job["starter"].as_string();
  placement.world_size = NumberOf(job, "world_size");
  placement.ranks = NumberOf(job, "ranks");
  placement.rank_hosts = RankHostsOf(job["hosts"]);
  RankPlace& first = placement.first;
  first.rank = NumberOf(job, "rank");
  first.world_size = placement.world_size;
  first.local_world_size = placement.ranks;
  first.store_host = job["store_host"].as_string();
  first.store_port = NumberOf(job, "store_port");
  first.job_id = job["job_id"].as_string();
  first.secret = job["secret"].as_string();
  if (first.rank == 0) {
    const ListeningSocket socket = ListenForRanks(first);
    first.store_fd = socket.fd;
    first.store_port = socket.port;
  }
  store_port = first.rank == 0 ? first.store_port : 0;
  return placement;
}

std::vector<std::string> ArgumentsOf(const Value& job) {
  std::vector<std::string> arguments;
  for (const Value& argument : job["arguments"].as_list())
    arguments.push_back(argument.as_string());
  return arguments;
}

}  // namespace strata::launcher
