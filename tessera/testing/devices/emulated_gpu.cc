#include "tessera/testing/devices/emulated_gpu.h"

#include <dlfcn.h>
#include <ucontext.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "tessera/base/error.h"
#include "tessera/base/random.h"
#include "tessera/kernels/cuda/cuda_kernels.h"

namespace tessera {
namespace {

constexpr size_t kStackBytes = size_t{64} << 10;
constexpr int kMaxThreads = 1024;

// The threads of one block, which take turns.
class Turns {
 public:
  // What a module has: where it says which thread it runs.
  struct Place {
    unsigned* thread;
    void (**yield)(int);
  };

  Turns()
      : stacks_(std::make_unique_for_overwrite<char[]>(kStackBytes * kMaxThreads)),
        contexts_(kMaxThreads),
        is_done_(kMaxThreads) {}

  void run_block(const Place& place, void (*function)(void**), void** arguments, int threads) {
    place_ = place;
    function_ = function;
    arguments_ = arguments;
    threads_ = threads;
    waiting_ = 0;
    *place.yield = [](int all) { current_->yield(all != 0); };
    current_ = this;
    for (int t = 0; t < threads; ++t) {
      auto& context = contexts_[static_cast<size_t>(t)];
      is_done_[static_cast<size_t>(t)] = false;
      ::getcontext(&context);
      context.uc_stack.ss_sp = stacks_.get() + static_cast<size_t>(t) * kStackBytes;
      context.uc_stack.ss_size = kStackBytes;
      context.uc_link = &scheduler_;
      ::makecontext(&context, reinterpret_cast<void (*)()>(&Turns::begin), 0);
    }
    for (int left = threads; left > 0;) {
      for (int t = 0; t < threads; ++t) {
        if (is_done_[static_cast<size_t>(t)]) continue;
        thread_ = t;
        *place_.thread = static_cast<unsigned>(t);
        ::swapcontext(&scheduler_, &contexts_[static_cast<size_t>(t)]);
        if (is_done_[static_cast<size_t>(t)]) --left;
      }
      if (waiting_ > 0 && waiting_ >= left) open_barrier();  // those that have ended are not waited for
    }
  }

 private:
  static void begin() {
    Turns& self = *current_;
    self.function_(self.arguments_);
    self.is_done_[static_cast<size_t>(self.thread_)] = true;
  }
  void open_barrier() {
    waiting_ = 0;
    ++rounds_;
  }
  void yield(bool all) {
    const int64_t round = rounds_;
    if (all && ++waiting_ == threads_) open_barrier();
    do {
      const int self = thread_;
      ::swapcontext(&contexts_[static_cast<size_t>(self)], &scheduler_);
    } while (all && rounds_ == round);
  }

  static thread_local Turns* current_;
  Place place_{};
  void (*function_)(void**) = nullptr;
  void** arguments_ = nullptr;
  int threads_ = 0;
  int thread_ = 0;
  int waiting_ = 0;
  int64_t rounds_ = 0;
  std::unique_ptr<char[]> stacks_;  // its pages are taken as they are used
  std::vector<ucontext_t> contexts_;
  std::vector<char> is_done_;
  ucontext_t scheduler_{};
};
thread_local Turns* Turns::current_ = nullptr;

std::string read_all(const std::filesystem::path& path) {
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

void write_all(const std::filesystem::path& path, const std::string& text) { std::ofstream(path) << text; }

}  // namespace

struct EmulatedGpu::Module {
  std::mutex mutex;  // one launch at a time: where a thread stands is written into the library
  void* library = nullptr;
  unsigned* thread = nullptr;
  unsigned* block = nullptr;
  unsigned* block_dim = nullptr;
  unsigned* grid_dim = nullptr;
  void (**yield)(int) = nullptr;

  Module() = default;
  Module(const Module&) = delete;
  Module& operator=(const Module&) = delete;
  ~Module() {
    if (library != nullptr) ::dlclose(library);
  }
  template <typename T>
  T* find(const std::string& name) const {
    auto* found = reinterpret_cast<T*>(::dlsym(library, name.c_str()));
    if (found == nullptr) throw InternalError(fmt::format("emulated kernel: no {} in the library", name));
    return found;
  }
};

namespace {

struct EmulatedFunction final : cuda::Gpu::Function {
  std::shared_ptr<void> module;
  void (*run)(void**) = nullptr;
};

// Where the library of a text is; compiled where it is not there yet.
std::string library_of(const std::string& text, const std::string& directory) {
  namespace fs = std::filesystem;
  const std::string name = fmt::format("{}/{:016x}{:08x}", directory, hash_name(text), text.size());
  const std::string library = name + ".so";
  if (fs::exists(library)) return library;
  fs::create_directories(directory);
  const std::string own = fmt::format("{}.{}", name, ::getpid());
  write_all(own + ".cc", text);
  const int code = std::system(
      fmt::format("c++ -std=c++20 -O1 -w -fno-strict-aliasing -fno-gnu-unique -ffp-contract=off -shared -fPIC "
                  "-o {0}.so {0}.cc >{0}.log 2>&1",
                  own)
          .c_str());
  if (code != 0) {
    throw InternalError(fmt::format("emulated kernel: it does not compile ({}.cc):\n{}", own, read_all(own + ".log")));
  }
  fs::rename(own + ".so", library);
  fs::remove(own + ".cc");
  fs::remove(own + ".log");
  return library;
}

}  // namespace

EmulatedGpu::EmulatedGpu(std::string directory, int num_multiprocessors)
    : directory_(std::move(directory)), num_multiprocessors_(num_multiprocessors) {}
EmulatedGpu::~EmulatedGpu() = default;

std::vector<std::shared_ptr<const cuda::Gpu::Function>> EmulatedGpu::compile(const std::string& text,
                                                                             std::span<const std::string> names) {
  const std::lock_guard lock(mutex_);
  auto& module = modules_[text];
  if (module == nullptr) {
    static const std::string emulation = read_all(TESSERA_SOURCE_DIR "/tessera/testing/devices/emulation.h");
    auto made = std::make_shared<Module>();
    made->library = ::dlopen(library_of(emulation + text, directory_).c_str(), RTLD_NOW | RTLD_LOCAL);
    if (made->library == nullptr) throw InternalError(fmt::format("emulated kernel: {}", ::dlerror()));
    made->thread = made->find<unsigned>("tessera_thread");
    made->block = made->find<unsigned>("tessera_block");
    made->block_dim = made->find<unsigned>("tessera_block_dim");
    made->grid_dim = made->find<unsigned>("tessera_grid_dim");
    made->yield = made->find<void (*)(int)>("tessera_yield");
    module = std::move(made);
  }
  std::vector<std::shared_ptr<const Function>> functions;
  for (const auto& name : names) {
    auto function = std::make_shared<EmulatedFunction>();
    function->module = module;
    function->run = module->find<void(void**)>("run_" + name);
    functions.push_back(std::move(function));
  }
  return functions;
}

void EmulatedGpu::launch(Queue&, const Function& function, int64_t blocks, int threads,
                         std::span<const void* const> arguments) {
  const auto& emulated = dynamic_cast<const EmulatedFunction&>(function);
  auto& module = *static_cast<Module*>(emulated.module.get());
  std::vector<void*> addresses;
  for (const void* address : arguments) addresses.push_back(const_cast<void*>(address));
  addresses.push_back(nullptr);  // the queue looks at the guard
  const std::lock_guard lock(module.mutex);
  static thread_local Turns turns;
  *module.block_dim = static_cast<unsigned>(threads);
  *module.grid_dim = static_cast<unsigned>(blocks);
  for (int64_t b = 0; b < blocks; ++b) {
    *module.block = static_cast<unsigned>(b);
    turns.run_block({module.thread, module.yield}, emulated.run, addresses.data(), threads);
  }
}

EmulatedGpu& emulated_gpu() {
  static EmulatedGpu gpu(TESSERA_BINARY_DIR "/emulated_kernels");
  return gpu;
}

kernels::Backend emulated_backend(FakeDevice& device) {
  static const KernelRegistry kKernels = cuda::generated_kernels(emulated_gpu());
  return {.name = "emulated cuda", .registries = {&kKernels}, .device = &device, .fusions = cuda::kFusions};
}

}  // namespace tessera
