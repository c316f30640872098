// What is said where a GPU cannot be used: a driver without a GPU (stub_driver.cc) fails as it is told, each time under
// a process of its own, which must end with an error: no crash, no wait without end, nothing computed on the CPU.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "tessera/base/error.h"
#include "tessera/cluster/run.h"
#include "tessera/kernels/cuda/cuda_backend.h"
#include "tessera/ops/registry/op_def.h"
#include "tessera/session/session.h"
#include "tessera/testing/test_folder.h"

namespace tessera::devices {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

const std::string kBuild = TESSERA_BINARY_DIR;

// How a process has ended: its exit code, or 128 and the number of a signal, and what it wrote to standard error.
struct Ended {
  int code = 0;
  std::string text;
};

void set_variable(const char* name, const std::string& value) { ::setenv(name, value.c_str(), 1); }

// A job whose ranks do that, with the driver of `folder` that does as `settings` say.
Ended ended(const std::string& settings, const std::function<void(cluster::Context&)>& of_rank, int ranks = 1,
            const std::string& folder = "stub_driver") {
  static const TestFolder kKernels("stub-driver-test");  // no other process may find the stub's kernels
  std::array<int, 2> ends{};
  check(::pipe(ends.data()) == 0, "no pipe");
  const pid_t child = ::fork();
  if (child == 0) {
    ::alarm(60);
    ::dup2(ends[1], 2);
    set_variable("TESSERA_CUDA_LIBRARIES", kBuild + "/" + folder);
    set_variable("TESSERA_CUDA_CACHE", kKernels.in("kernels"));
    set_variable("TESSERA_STUB_DRIVER", settings);
    if (ranks > 1) set_variable("TESSERA_THREAD_RANKS", std::to_string(ranks));
    std::string name = "job";
    std::array<char*, 2> arguments = {name.data(), nullptr};
    ::_exit(cluster::run(1, arguments.data(), [&](cluster::Context& context) { of_rank(context); }));
  }
  ::close(ends[1]);
  Ended result;
  std::array<char, 4096> part{};
  for (ssize_t n = 0; (n = ::read(ends[0], part.data(), part.size())) > 0;) {
    result.text.append(part.data(), static_cast<size_t>(n));
  }
  ::close(ends[0]);
  int status = 0;
  ::waitpid(child, &status, 0);
  result.code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  return result;
}

// Doubles a value of so many MiB, `times` times, once all is ready and `when_ready` was called.
std::function<void(cluster::Context&)> doubles(
    const std::string& device, int64_t mebibytes = 1, int times = 1,
    const std::function<void(cluster::Context&)>& when_ready = [](cluster::Context&) {}) {
  return [=](cluster::Context& context) {
    const Type type{DType::kF32, {mebibytes, 1024, 256}};
    ir::Graph graph("doubling");
    const ir::Value x = graph.add_input(ir::InputKind::kInput, "x", type);
    graph.add_output("y", ops::apply1("add", {x, x}));
    session::Session session(context, {.device = device, .num_threads = 1});
    const auto executable = session.compile_local(graph);
    when_ready(context);
    for (int i = 0; i < times; ++i) executable->run();
  };
}

void expect_error(const Ended& ended, const testing::Matcher<const std::string&>& text) {
  EXPECT_EQ(ended.code, cluster::kExitFailure) << ended.text;
  EXPECT_THAT(ended.text, AllOf(HasSubstr("error: cuda:"), text, Not(HasSubstr("terminate called"))));
}

TEST(StubDriver, ComputesWhereNothingFails) {
  const Ended all = ended("", doubles("cuda:0", 1, 3));
  EXPECT_EQ(all.code, 0) << all.text;
  EXPECT_EQ(all.text, "");
}

// The kernel of a library for x w^T + r + b of f32, run on the stub's memory; it says its name and whether the sums are
// right.
void adds_bias_and_value(cluster::Context&) {
  const kernels::Backend& backend = cuda::cuda_backend(0);
  const Tensor x(DType::kF32, {3, 4});
  const Tensor w(DType::kF32, {5, 4});
  const Tensor b(DType::kF32, {5});
  const Tensor r(DType::kF32, {3, 5});
  const Tensor y(DType::kF32, {3, 5});
  float number = 0;
  for (const Tensor* tensor : {&x, &w, &b, &r}) {
    for (float& element : tensor->values<float>()) element = number += 1;
  }
  const KernelRequest request{.op = "fused_matmul",
                              .inputs = {x.view(), w.view(), b.view(), r.view()},
                              .outputs = {y.view()},
                              .attributes = {{"transpose_a", false},
                                             {"transpose_b", true},
                                             {"program", "t0=add a0 a1; t1=add a2 t0; return t1"},
                                             {"dtype", DType::kF32}}};
  const auto kernel = backend.registries[0]->find(request);
  check(kernel.has_value(), "the library takes it");
  std::vector<std::byte> scratch(static_cast<size_t>(kernel->scratch_bytes));
  const ParallelFor parallel_for(1);
  const auto queue = backend.device->make_queue();
  queue->launch(*kernel, {request.inputs, request.outputs, request.attributes, scratch, parallel_for, queue.get()},
                nullptr);
  queue->synchronize();
  bool is_right = true;
  for (size_t i = 0; i < 3; ++i) {
    for (size_t j = 0; j < 5; ++j) {
      float sum = b.values<float>()[j] + r.values<float>()[i * 5 + j];
      for (size_t k = 0; k < 4; ++k) sum += x.values<float>()[i * 4 + k] * w.values<float>()[j * 4 + k];
      is_right = is_right && y.values<float>()[i * 5 + j] == sum;
    }
  }
  std::fprintf(stderr, "%s: %s\n", kernel->name.c_str(), is_right ? "right" : "wrong");
}

TEST(StubDriver, GivesTheLibraryOfProductsBiasAndValueAsItsEpilogue) {
  const Ended all = ended("blas=1", adds_bias_and_value);
  EXPECT_EQ(all.code, 0) << all.text;
  EXPECT_THAT(all.text, HasSubstr("product: epilogue 4, beta 1, bias of type 0\ncublaslt.fused_matmul: right"));
}

TEST(StubDriver, ComputesAnEpilogueThatTheLibraryRefusesInAKernelOfItsOwn) {
  const Ended all = ended("blas=2", adds_bias_and_value);
  EXPECT_EQ(all.code, 0) << all.text;
  EXPECT_THAT(all.text, HasSubstr("product: epilogue 0, beta 0, bias of type 0"));
  // The stub's generated kernels do nothing, so sums are not looked at.
  EXPECT_THAT(all.text, HasSubstr("cublaslt.matmul+cuda.fused_elementwise: "));
}

TEST(StubDriver, TakesTimedEventsIntoARecording) {
  const Ended all = ended("", [](cluster::Context&) {
    Device& device = *cuda::cuda_backend(0).device;
    const auto queue = device.make_queue();
    const auto timed = device.make_timed_event();
    const auto untimed = device.make_event();
    const std::vector<RecordedWork> work{{.give = [&] { queue->record(*timed); }}};
    queue->replay(*queue->record(work));
    queue->record(*timed);  // outside of one, too
    queue->synchronize();
    const std::vector<RecordedWork> wrong{{.give = [&] { queue->record(*untimed); }}};
    queue->record(wrong);
  });
  EXPECT_NE(all.code, 0) << all.text;
  EXPECT_THAT(all.text, HasSubstr("an event in a recording is timed"));
}

TEST(StubDriver, ShowsNoDevice) {
  expect_error(
      ended("init=100", doubles("cuda:0")),
      HasSubstr("cuda: the driver finds no device it can use (CUDA_ERROR_NO_DEVICE): it shows this process none; "
                "`nvidia-smi -L` lists those of the machine, and CUDA_VISIBLE_DEVICES or a container may hide"));
  expect_error(ended("devices=0", doubles("cuda:0")),
               HasSubstr("there is no device cuda:0; the driver shows this process 0"));
}

TEST(StubDriver, DoesNotBegin) {
  expect_error(ended("init=803", doubles("cuda:0")),
               HasSubstr("(CUDA_ERROR_SYSTEM_DRIVER_MISMATCH): libcuda.so.1 and the system's kernel have drivers of "
                         "different versions"));
  expect_error(ended("init=12345", doubles("cuda:0")),
               HasSubstr("the driver finds no device it can use (error 12345)"));
}

TEST(StubDriver, IsTooOld) {
  constexpr const char* kTold = "cuda: the driver is of CUDA 12.8; 13.0 or later is needed: install driver 580";
  expect_error(ended("version=12080", doubles("cuda:0")), HasSubstr(kTold));
  expect_error(ended("version=12080", doubles("cuda:0"), 1, "stub_driver_lacking"), HasSubstr(kTold));
}

TEST(StubDriver, LacksAFunction) {
  expect_error(
      ended("", doubles("cuda:0"), 1, "stub_driver_lacking"),
      HasSubstr("/stub_driver_lacking/libcuda.so.1 has no function cuGraphInstantiateWithFlags: it is too old"));
}

TEST(StubDriver, HasADeviceThatIsTooOld) {
  expect_error(ended("capability=75", doubles("cuda:0")),
               HasSubstr("cuda:0: Stub GPU cannot be used: it is sm_75, and devices from sm_80 on can be used"));
}

TEST(StubDriver, HasNoDeviceOfThatNumber) {
  expect_error(ended("devices=2", doubles("cuda:5")),
               HasSubstr("there is no device cuda:5; the driver shows this process 2, which are numbered from 0"));
}

TEST(StubDriver, HasADeviceThatAnotherProcessHas) {
  expect_error(
      ended("mode=3,open=46", doubles("cuda:0")),
      HasSubstr("cuda:0: Stub GPU is taken: one process at a time may have it (compute mode EXCLUSIVE_PROCESS)"));
  expect_error(ended("mode=2", doubles("cuda:0")),
               HasSubstr("cuda:0: Stub GPU cannot be used: its compute mode lets no process use it"));
  expect_error(
      ended("open=46", doubles("cuda:0")),
      HasSubstr("cuda:0: opening Stub GPU failed: the stub was told so (CUDA_ERROR_DEVICE_UNAVAILABLE): another "
                "process has it for itself"));
}

TEST(StubDriver, HasLessMemoryThanAStepNeeds) {
  expect_error(
      ended("memory=64", doubles("cuda:0", 48)),
      AllOf(HasSubstr("cuda:0: out of memory: the arena needs 96.0 MiB, of which it has "),
            HasSubstr("and of the 64.0 MiB of Stub GPU are 62.0 MiB free: a smaller batch, recompute "
                      "(memory_limit) or more ranks that share the values take less"),
            HasSubstr("graph doubling needs 96.0 MiB: "), HasSubstr("48.0 MiB x f32[48,1024,256] of copy \"x\"")));
  expect_error(
      ended("memory=128,others=64", doubles("cuda:0", 48)),
      HasSubstr("and of the 128.0 MiB of Stub GPU are 62.0 MiB free; `nvidia-smi` shows which processes have the "
                "rest: a smaller batch"));
  // The memory of the host that copies go through.
  expect_error(ended("host=2", doubles("cuda:0", 48)),
               HasSubstr("cuda:0: taking 96.0 MiB of the host's memory for copies failed: the stub was told so "
                         "(CUDA_ERROR_OUT_OF_MEMORY)"));
}

TEST(StubDriver, LosesItsDevice) {
  constexpr const char* kLost =
      "the stub was told so (CUDA_ERROR_LAUNCH_FAILED): the device is lost to this process, with all that lay there: "
      "start it again and go on from the newest checkpoint";
  expect_error(ended("lost=719", doubles("cuda:0", 1, 3)), AllOf(HasSubstr("error: cuda:0: "), HasSubstr(kLost)));
}

TEST(StubDriver, LosesTheDeviceOfARankThatOthersWaitFor) {
  const auto waits = [](cluster::Context& context) {
    const bool is_first = context.rank() == 0;
    doubles("cuda:0", 1, is_first ? 3 : 0, [&](cluster::Context& all) {
      // The other one is done with the device by then.
      if (is_first) all.world().barrier("the beginning");
    })(context);
    if (!is_first) context.world().barrier("the beginning");
    context.world().barrier("the end");
  };
  const Ended all = ended("lost=719", waits, 2);
  expect_error(
      all, AllOf(HasSubstr("rank 0: error: cuda:0: "), HasSubstr("(CUDA_ERROR_LAUNCH_FAILED): the device is lost")));
}

TEST(StubDriver, HasACompilerOfKernelsThatIsTooOld) {
  // A shape of its own, of which no kernel is kept.
  expect_error(ended("nvrtc=12", doubles("cuda:0", 3)),
               HasSubstr("/stub_driver/libnvrtc.so.13, is of CUDA 12.0; 13.0 or later is needed"));
}

TEST(StubDriver, DoesNotTakeAKernel) {
  expect_error(
      ended("module=209", doubles("cuda:0")),
      HasSubstr("cuda:0: loading a kernel failed: the stub was told so (CUDA_ERROR_NO_BINARY_FOR_GPU): a kernel "
                "that is kept for another GPU; empty the folder of TESSERA_CUDA_CACHE"));
}

TEST(StubDriver, GivesEachRankTheDeviceOfItsNumber) {
  const auto says = [](const std::string& device) {
    return [device](cluster::Context& context) {
      const session::Session session(context, {.device = device, .num_threads = 1});
      std::fprintf(stderr, "rank %d: %s;", context.rank(), session.device_name().c_str());
    };
  };
  const Ended by_number = ended("devices=2", says("cuda"), 2);
  EXPECT_EQ(by_number.code, 0);
  EXPECT_THAT(by_number.text, AllOf(HasSubstr("rank 0: cuda:0;"), HasSubstr("rank 1: cuda:1;")));
  // Several on one only where its number names it.
  const Ended by_name = ended("devices=2", says("cuda:1"), 3);
  EXPECT_EQ(by_name.code, 0);
  for (const char* rank : {"rank 0: cuda:1;", "rank 1: cuda:1;", "rank 2: cuda:1;"}) {
    EXPECT_THAT(by_name.text, HasSubstr(rank));
  }
  const Ended too_many = ended("devices=2", says("cuda"), 3);
  EXPECT_EQ(too_many.code, cluster::kExitFailure);
  EXPECT_THAT(
      too_many.text,
      AllOf(HasSubstr("device \"cuda\": this host has 3 ranks and 2 GPUs, of which each rank takes one: start 2 "
                      "ranks here at most, or name the GPU that several use, as \"cuda:0\""),
            Not(HasSubstr(": cuda:"))));
}

// Tells the other process a text and returns what that one has told.
using Tells = std::function<std::string(const std::string&)>;

// What two processes do that are ranks 0 and 1 on the stub's device.
Ended on_two_processes(const std::string& settings,
                       const std::function<void(int rank, DeviceCommunicators&, const Tells&)>& of_rank) {
  return ended(settings, [&](cluster::Context&) {
    std::array<std::array<int, 2>, 2> pipes{};  // by who reads
    for (auto& ends : pipes) check(::pipe(ends.data()) == 0, "no pipe");
    const pid_t second = ::fork();
    const int rank = second == 0 ? 1 : 0;
    ::close(pipes[static_cast<size_t>(rank)][1]);
    ::close(pipes[static_cast<size_t>(1 - rank)][0]);
    const Tells tells = [&](const std::string& text) {
      const size_t size = text.size();
      const int to = pipes[static_cast<size_t>(1 - rank)][1];
      check(::write(to, &size, sizeof(size)) == ssize_t{sizeof(size)} &&
                ::write(to, text.data(), size) == static_cast<ssize_t>(size),
            "nothing is told");
      const int from = pipes[static_cast<size_t>(rank)][0];
      size_t other_size = 0;
      if (::read(from, &other_size, sizeof(other_size)) != ssize_t{sizeof(other_size)})
        throw IoError("the other one has ended");
      std::string other(other_size, 0);
      check(::read(from, other.data(), other_size) == static_cast<ssize_t>(other_size), "half of a text");
      return other;
    };
    const auto works = [&] { of_rank(rank, *cuda::cuda_backend(0).within_device, tells); };
    if (second != 0) {
      works();
      int status = 0;
      ::waitpid(second, &status, 0);
      if (status != 0) throw IoError("cuda: the second process has failed");
      return;
    }
    ::alarm(60);
    try {
      works();
      ::_exit(0);
    } catch (const std::exception& error) {
      std::fprintf(stderr, "second: %s\n", error.what());
      ::_exit(1);
    }
  });
}

// Memory of the stub's device with these numbers, and them as they are there.
std::unique_ptr<Memory> in_memory(Queue& queue, std::vector<float>& numbers) {
  const auto bytes = static_cast<int64_t>(numbers.size() * sizeof(float));
  auto memory = cuda::cuda_backend(0).device->reserve(bytes);
  memory->resize(bytes);
  queue.copy(memory->data(), numbers.data(), bytes, CopyWay::kToDevice);
  return memory;
}

// The stub's kernels do nothing: so nothing is added up here.
TEST(StubDriver, ShowsAProcessTheMemoryOfAnother) {
  const Ended all = on_two_processes("", [](int rank, DeviceCommunicators& shared, const Tells& tells) {
    shared.try_offer(tells(shared.offer()));
    const std::string made = rank == 0 ? shared.make_id() : "";
    const std::string told = tells(made);
    const auto group = shared.join(rank == 0 ? made : told, rank, 2, [] {});
    const auto queue = cuda::cuda_backend(0).device->make_queue();
    // More than fits a slot, and not the same of both.
    const std::array<int64_t, 2> counts{700'000, 600'001};
    const size_t first = static_cast<size_t>(counts[0]);
    std::vector<float> numbers(first + static_cast<size_t>(counts[1]));
    for (size_t i = 0; i < numbers.size(); ++i) numbers[i] = static_cast<float>(i % 1000);
    std::vector<float> own(numbers.begin() + (rank == 0 ? 0 : counts[0]),
                           rank == 0 ? numbers.begin() + counts[0] : numbers.end());
    std::vector<float> gathered(numbers.size());
    const auto own_there = in_memory(*queue, own);
    const auto all_there = in_memory(*queue, gathered);
    group->all_gather(*queue, own_there->data(), all_there->data(), counts, DType::kF32);
    queue->copy(gathered.data(), all_there->data(), static_cast<int64_t>(gathered.size() * sizeof(float)),
                CopyWay::kToHost);
    queue->synchronize();
    std::fprintf(stderr, "rank %d: %s;", rank, gathered == numbers ? "right" : "wrong");
    if (rank == 0) group->send(*queue, own_there->data(), 600'001, DType::kF32, 1);
    if (rank == 1) {
      group->receive(*queue, own_there->data(), 600'001, DType::kF32, 0);
      queue->copy(own.data(), own_there->data(), 600'001 * 4, CopyWay::kToHost);
      queue->synchronize();
      std::fprintf(stderr, "message: %s;", std::equal(own.begin(), own.end(), numbers.begin()) ? "right" : "wrong");
    }
  });
  EXPECT_EQ(all.code, 0) << all.text;
  for (const char* said : {"rank 0: right;", "rank 1: right;", "message: right;"}) {
    EXPECT_THAT(all.text, HasSubstr(said));
  }
}

TEST(StubDriver, ShowsAProcessNoMemoryOfAnother) {
  const Ended all = on_two_processes("ipc=801", [](int rank, DeviceCommunicators& shared, const Tells& tells) {
    try {
      shared.try_offer(tells(shared.offer()));
    } catch (const IoError& error) {
      std::fprintf(stderr, "rank %d: %s;", rank, error.what());
    }
  });
  EXPECT_EQ(all.code, 0) << all.text;
  for (const char* rank : {"rank 0: ", "rank 1: "}) {
    EXPECT_THAT(all.text, HasSubstr(std::string(rank) +
                                    "cuda:0: showing its memory to other processes failed: the stub was told so "
                                    "(CUDA_ERROR_NOT_SUPPORTED)"));
  }
}

// Who waits asks for the reason meanwhile, as a group of a job does (comm::DeviceGroup).
TEST(StubDriver, IsLeftByAProcessThatAnotherWaitsFor) {
  const Ended all = on_two_processes("", [](int rank, DeviceCommunicators& shared, const Tells& tells) {
    const std::string made = rank == 0 ? shared.make_id() : "";
    const std::string told = tells(made);
    int num_asked = 0;
    bool has_gone = false;
    const auto group = shared.join(rank == 0 ? made : told, rank, 2, [&] {
      if (has_gone && ++num_asked == 100) throw IoError("rank 1 has gone");
    });
    tells("both have come");
    if (rank == 1) ::_exit(0);
    has_gone = true;
    const auto queue = cuda::cuda_backend(0).device->make_queue();
    std::vector<float> numbers(5);
    const auto memory = in_memory(*queue, numbers);
    try {
      group->broadcast(*queue, memory->data(), 5, DType::kF32, 1);
    } catch (const IoError& error) {
      std::fprintf(stderr, "%s;", error.what());
      group->abort();
    }
  });
  EXPECT_EQ(all.code, 0) << all.text;
  EXPECT_THAT(all.text, HasSubstr("rank 1 has gone;"));
}

// What `tessera info` prints with the driver as it is told.
Ended info(const std::string& settings, const std::string& folder = "stub_driver") {
  const std::string command = "TESSERA_STUB_DRIVER='" + settings + "' TESSERA_CUDA_LIBRARIES='" + kBuild + "/" +
                              folder + "' '" + kBuild + "/bin/tessera' info 2>&1";
  FILE* const pipe = ::popen(command.c_str(), "r");
  check(pipe != nullptr, "cannot start a process");
  Ended result;
  std::array<char, 4096> part{};
  for (size_t n = 0; (n = std::fread(part.data(), 1, part.size(), pipe)) > 0;) result.text.append(part.data(), n);
  const int status = ::pclose(pipe);
  result.code = WIFEXITED(status) ? WEXITSTATUS(status) : 128;
  return result;
}

TEST(StubDriver, IsShownByTheCommandInfo) {
  const std::array<std::pair<const char*, const char*>, 8> cases = {{
      {"", "cuda:0 Stub GPU (sm_90, 1.0 GiB)\n"},
      {"devices=2", "cuda:0 Stub GPU (sm_90, 1.0 GiB), cuda:1 Stub GPU (sm_90, 1.0 GiB)\n"},
      {"mode=3", "cuda:0 Stub GPU (sm_90, 1.0 GiB, for one process at a time)\n"},
      {"mode=2", "cuda:0 Stub GPU (sm_90, 1.0 GiB; cannot be used: its compute mode lets no process use it"},
      {"capability=75",
       "cuda:0 Stub GPU (sm_75, 1.0 GiB; cannot be used: it is sm_75, and devices from sm_80 on can be"},
      {"init=100", "none: cuda: the driver finds no device it can use (CUDA_ERROR_NO_DEVICE)"},
      {"devices=0", "none: cuda: the driver shows this process no device; CUDA_VISIBLE_DEVICES may hide them\n"},
      {"version=12080", "none: cuda: the driver is of CUDA 12.8; 13.0 or later is needed"},
  }};
  for (const auto& [settings, expected] : cases) {
    const Ended shown = info(settings);
    EXPECT_EQ(shown.code, 0) << settings;
    EXPECT_THAT(shown.text, HasSubstr(std::string("gpus          ") + expected)) << settings;
  }
  const Ended lacking = info("", "stub_driver_lacking");
  EXPECT_EQ(lacking.code, 0);
  EXPECT_THAT(lacking.text, HasSubstr("libcuda.so.1 has no function cuGraphInstantiateWithFlags"));
}

}  // namespace
}  // namespace tessera::devices
