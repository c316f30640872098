#include "tessera/kernels/cuda/libraries/cublaslt.h"

#include <algorithm>
#include <map>
#include <memory>
#include <mutex>

#include "tessera/base/error.h"
#include "tessera/kernels/cuda/device/cuda_queue.h"
#include "tessera/kernels/cuda/device/shared_library.h"
#include "tessera/kernels/cuda/libraries/product_epilogue.h"
#include "tessera/kernels/cuda/libraries/timing.h"
#include "tessera/tensor/kernel_chain.h"

namespace tessera::cuda {
namespace {

constexpr size_t kWorkspaceBytes = size_t{32} << 20;
constexpr uint32_t kAlignment = 64;             // of operands
constexpr uintptr_t kWorkspaceAlignment = 256;  // as the library wants it

void* aligned(std::byte* scratch) {
  const auto address = reinterpret_cast<uintptr_t>(scratch);
  return reinterpret_cast<void*>((address + kWorkspaceAlignment - 1) / kWorkspaceAlignment * kWorkspaceAlignment);
}

#define TESSERA_TEXT_OF(name) #name
#define TESSERA_SYMBOL(name) TESSERA_TEXT_OF(name)

void require_blas(cublasStatus_t status, const char* what) {
  if (status != CUBLAS_STATUS_SUCCESS) {
    throw IoError("cublasLt: {} failed with status {}", what, static_cast<int>(status));
  }
}

// A matrix in memory, column-major: `rows` lie one after another, columns `leading` apart.
struct Stored {
  int64_t rows = 0, columns = 0, leading = 0;
  bool is_transposed = false;  // of the one that is meant

  bool operator<(const Stored& other) const {
    return std::tie(rows, columns, leading, is_transposed) <
           std::tie(other.rows, other.columns, other.leading, other.is_transposed);
  }
};

// The matrix [rows, columns] of a row-major view, with these strides, as its transpose [columns, rows] is stored
// column-major.
std::optional<Stored> stored(int64_t rows, int64_t columns, int64_t row_stride, int64_t column_stride) {
  if (columns == 1) column_stride = 1;
  if (rows == 1 && column_stride == 1) row_stride = columns;
  if (column_stride == 1 && row_stride >= columns) return Stored{columns, rows, row_stride, false};
  if (rows == 1) row_stride = 1;
  if (row_stride == 1 && column_stride >= rows) return Stored{rows, columns, column_stride, true};
  return std::nullopt;
}

// How far apart the matrices of the leading dims are; nullopt where that is not one number.
std::optional<int64_t> batch_stride(const TensorView& view) {
  int64_t stride = 0;
  int64_t expected = 0;
  for (int d = view.shape.ndim() - 3; d >= 0; --d) {
    if (view.shape[d] == 1) continue;
    if (stride == 0) {
      stride = view.strides[d];
      expected = stride * view.shape[d];
      continue;
    }
    if (view.strides[d] != expected) return std::nullopt;
    expected *= view.shape[d];
  }
  return stride;
}

struct Problem {
  cudaDataType_t type = CUDA_R_32F;
  cudaDataType_t result_type = CUDA_R_32F;
  cublasComputeType_t compute = CUBLAS_COMPUTE_32F;
  cudaDataType_t scale = CUDA_R_32F;
  Stored first, second, result;  // as they are given to the library, which computes the transpose
  int64_t batch = 1;
  int64_t first_stride = 0, second_stride = 0, result_stride = 0;
  uint32_t epilogue = CUBLASLT_EPILOGUE_DEFAULT;
  std::optional<Stored> added = std::nullopt;  // what the product is added to; without it beta is 0

  bool has_bias() const { return (epilogue & CUBLASLT_EPILOGUE_BIAS) != 0; }
  bool operator<(const Problem& o) const {
    return std::tie(type, result_type, compute, first, second, result, batch, first_stride, second_stride,
                    result_stride, epilogue, added) < std::tie(o.type, o.result_type, o.compute, o.first, o.second,
                                                               o.result, o.batch, o.first_stride, o.second_stride,
                                                               o.result_stride, o.epilogue, o.added);
  }
};

std::optional<cudaDataType_t> library_type(DType dtype) {
  switch (dtype) {
    case DType::kF32: return CUDA_R_32F;
    case DType::kF64: return CUDA_R_64F;
    case DType::kBF16: return CUDA_R_16BF;
    case DType::kF16: return CUDA_R_16F;
    default: return std::nullopt;
  }
}

std::optional<Problem> problem_of(const KernelRequest& request, bool allows_tf32) {
  const TensorView& a = request.inputs[0];
  const TensorView& b = request.inputs[1];
  const TensorView& c = request.outputs[0];
  if (c.num_elements() == 0 || a.num_elements() == 0) return std::nullopt;
  const auto type = library_type(a.dtype);
  const auto result_type = library_type(c.dtype);
  if (!type || !result_type || a.dtype != b.dtype) return std::nullopt;
  const bool is_half = a.dtype == DType::kBF16 || a.dtype == DType::kF16;
  if (c.dtype != a.dtype && !(is_half && c.dtype == DType::kF32)) return std::nullopt;
  Problem problem{.type = *type, .result_type = *result_type};
  if (a.dtype == DType::kF64) {
    problem.compute = CUBLAS_COMPUTE_64F;
    problem.scale = CUDA_R_64F;
  } else if (a.dtype == DType::kF32 && allows_tf32) {
    problem.compute = CUBLAS_COMPUTE_32F_FAST_TF32;
  }
  const int last = c.shape.ndim() - 1;
  const int64_t m = c.shape[last - 1];
  const int64_t n = c.shape[last];
  const auto matrix = [](const TensorView& view, bool transposed) {
    const int end = view.shape.ndim() - 1;
    const int row = transposed ? end : end - 1;
    const int column = transposed ? end - 1 : end;
    return stored(view.shape[row], view.shape[column], view.strides[row], view.strides[column]);
  };
  const auto first = matrix(b, request.attributes.get_bool("transpose_b"));
  const auto second = matrix(a, request.attributes.get_bool("transpose_a"));
  const auto result = stored(m, n, c.strides[last - 1], c.strides[last]);
  const auto a_stride = batch_stride(a);
  const auto b_stride = batch_stride(b);
  const auto c_stride = batch_stride(c);
  if (!first || !second || !result || result->is_transposed || !a_stride || !b_stride || !c_stride) {
    return std::nullopt;
  }
  problem.first = *first;
  problem.second = *second;
  problem.result = *result;
  for (int d = 0; d + 2 < c.shape.ndim(); ++d) problem.batch *= c.shape[d];
  problem.first_stride = *b_stride;
  problem.second_stride = *a_stride;
  problem.result_stride = *c_stride;
  return problem;
}

// A product and its epilogue; nullopt where the library computes no such.
std::optional<Problem> fused_problem_of(const KernelRequest& request, bool allows_tf32) {
  const auto epilogue = product_epilogue(request);
  auto problem = epilogue ? problem_of(request, allows_tf32) : std::nullopt;
  if (!problem) return std::nullopt;
  // The library has the transpose of the product: a bias of our columns is one of its rows.
  uint32_t number = epilogue->has_gelu ? CUBLASLT_EPILOGUE_GELU : 0;
  if (epilogue->bias) number |= CUBLASLT_EPILOGUE_BIAS;
  if (number != 0) problem->epilogue = number;
  if (epilogue->value) {
    const TensorView& value = request.inputs[*epilogue->value];
    problem->added = stored(value.shape[0], value.shape[1], value.strides[0], value.strides[1]);
    if (!problem->added || problem->added->is_transposed) return std::nullopt;
  }
  return problem;
}

// What a product is computed of and where it goes.
struct Addresses {
  const void* a = nullptr;
  const void* b = nullptr;
  void* c = nullptr;
  const void* bias = nullptr;
  const void* added = nullptr;
};

// A problem as the library's descriptors, with the algorithm that is taken.
class Product {
 public:
  explicit Product(const Problem& problem) : problem_(problem) {
    const auto& blas = cublaslt();
    require_blas(blas.create_description(&description_, problem.compute, problem.scale), "describing a product");
    const cublasOperation_t first = problem.first.is_transposed ? CUBLAS_OP_T : CUBLAS_OP_N;
    const cublasOperation_t second = problem.second.is_transposed ? CUBLAS_OP_T : CUBLAS_OP_N;
    require_blas(blas.set_description(description_, CUBLASLT_MATMUL_DESC_TRANSA, &first, sizeof(first)), "describing");
    require_blas(blas.set_description(description_, CUBLASLT_MATMUL_DESC_TRANSB, &second, sizeof(second)),
                 "describing");
    layout(&first_, problem.type, problem.first, problem.first_stride);
    layout(&second_, problem.type, problem.second, problem.second_stride);
    layout(&result_, problem.result_type, problem.result, problem.result_stride);
    if (problem.added) layout(&added_, problem.result_type, *problem.added, 0);
    if (problem.epilogue == CUBLASLT_EPILOGUE_DEFAULT) return;
    require_blas(
        blas.set_description(description_, CUBLASLT_MATMUL_DESC_EPILOGUE, &problem.epilogue, sizeof(problem.epilogue)),
        "describing an epilogue");
    if (!problem.has_bias()) return;
    const auto type = static_cast<int32_t>(problem.result_type);
    require_blas(blas.set_description(description_, CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, &type, sizeof(type)),
                 "describing a bias");
    // What is proposed depends on how this address is aligned; nobody reads there.
    set_bias(reinterpret_cast<const void*>(uintptr_t{kAlignment}));
  }
  ~Product() {
    const auto& blas = cublaslt();
    for (auto* made : {first_, second_, result_}) blas.destroy_layout(made);
    if (added_ != nullptr) blas.destroy_layout(added_);
    blas.destroy_description(description_);
  }
  Product(const Product&) = delete;
  Product& operator=(const Product&) = delete;

  // The algorithms that the library proposes, best first; empty: none.
  std::vector<cublasLtMatmulHeuristicResult_t> proposals(cublasLtHandle_t handle) const {
    const auto& blas = cublaslt();
    cublasLtMatmulPreference_t preference = nullptr;
    require_blas(blas.create_preference(&preference), "describing a preference");
    blas.set_preference(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &kWorkspaceBytes,
                        sizeof(kWorkspaceBytes));
    for (const auto alignment :
         {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
          CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES}) {
      blas.set_preference(preference, alignment, &kAlignment, sizeof(kAlignment));
    }
    std::vector<cublasLtMatmulHeuristicResult_t> found(8);
    int count = 0;
    const auto status = blas.heuristic(handle, description_, first_, second_, layout_of_added(), result_, preference,
                                       static_cast<int>(found.size()), found.data(), &count);
    blas.destroy_preference(preference);
    if (status != CUBLAS_STATUS_SUCCESS) return {};
    found.resize(static_cast<size_t>(count));
    std::erase_if(found, [](const auto& result) { return result.state != CUBLAS_STATUS_SUCCESS; });
    return found;
  }

  // Any thread.
  void run(cublasLtHandle_t handle, const cublasLtMatmulAlgo_t& algorithm, const Addresses& at, void* workspace,
           CUstream stream) {
    const double one = 1;
    const double zero = 0;
    const float one_f = 1;
    const float zero_f = 0;
    const bool is_f64 = problem_.scale == CUDA_R_64F;
    const bool adds = problem_.added.has_value();
    const void* alpha = is_f64 ? static_cast<const void*>(&one) : &one_f;
    const void* none = is_f64 ? static_cast<const void*>(&zero) : &zero_f;
    const auto multiply = [&] {
      require_blas(cublaslt().multiply(handle, description_, alpha, at.b, first_, at.a, second_, adds ? alpha : none,
                                       adds ? at.added : at.c, layout_of_added(), at.c, result_, &algorithm, workspace,
                                       kWorkspaceBytes, stream),
                   "a product");
    };
    if (!problem_.has_bias()) return multiply();
    // The bias's address is part of the description, which the library reads in the call.
    const std::lock_guard lock(mutex_);
    set_bias(at.bias);
    multiply();
  }

 private:
  cublasLtMatrixLayout_t layout_of_added() const { return added_ != nullptr ? added_ : result_; }

  void set_bias(const void* address) const {
    require_blas(cublaslt().set_description(description_, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &address, sizeof(address)),
                 "giving a bias");
  }

  void layout(cublasLtMatrixLayout_t* made, cudaDataType_t type, const Stored& matrix, int64_t stride) const {
    const auto& blas = cublaslt();
    require_blas(blas.create_layout(made, type, static_cast<uint64_t>(matrix.rows),
                                    static_cast<uint64_t>(matrix.columns), matrix.leading),
                 "describing a matrix");
    if (problem_.batch == 1) return;
    const auto count = static_cast<int32_t>(problem_.batch);
    require_blas(blas.set_layout(*made, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &count, sizeof(count)), "describing");
    require_blas(blas.set_layout(*made, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, &stride, sizeof(stride)),
                 "describing");
  }

  Problem problem_;
  cublasLtMatmulDesc_t description_ = nullptr;
  cublasLtMatrixLayout_t first_ = nullptr, second_ = nullptr, result_ = nullptr, added_ = nullptr;
  std::mutex mutex_;
};

int64_t spanned_bytes(const TensorView& view) {
  int64_t last = 0;
  for (int d = 0; d < view.shape.ndim(); ++d) last += (view.shape[d] - 1) * view.strides[d];
  return (last + 1) * static_cast<int64_t>(size_bytes(view.dtype));
}

// A request whose operands and results lie in memory of their own, for measuring.
struct PlacedRequest {
  KernelRequest request;
  std::vector<std::unique_ptr<DeviceBuffer>> buffers = {};

  PlacedRequest(const CudaDevice& device, const KernelRequest& of) : request(of) {
    for (auto* views : {&request.inputs, &request.outputs}) {
      for (TensorView& view : *views) {
        buffers.push_back(std::make_unique<DeviceBuffer>(device, spanned_bytes(view)));
        view.data = buffers.back()->data();
      }
    }
  }
};

// The library on a device, and what was measured there.
class Products {
 public:
  Products(CudaDevice& device, const KernelRegistry& generated, const LibraryWays& ways)
      : device_(device), generated_(generated), ways_(ways) {
    device.use();
    require_blas(cublaslt().create(&handle_), "opening cublasLt");
  }

  std::optional<PreparedKernel> prepare(const KernelRequest& request) {
    const auto problem = problem_of(request, ways_.allows_tf32);
    if (!problem) return std::nullopt;
    return prepare(request, *problem, {}, nullptr);
  }

  // The product with its epilogue, or in two kernels, whichever is faster; what the library has no epilogue for in two.
  std::optional<PreparedKernel> prepare_fused(const KernelRequest& request) {
    auto unfused = prepare_two_kernels(request);
    const auto problem = fused_problem_of(request, ways_.allows_tf32);
    if (!problem) return unfused;
    auto fused = prepare(request, *problem, *product_epilogue(request), unfused ? &*unfused : nullptr);
    return fused ? std::move(fused) : std::move(unfused);
  }

 private:
  // nullopt where the library has no way, or `instead` is faster than all.
  std::optional<PreparedKernel> prepare(const KernelRequest& request, const Problem& problem,
                                        const ProductEpilogue& epilogue, const PreparedKernel* instead) {
    device_.use();
    const auto product = std::make_shared<Product>(problem);
    const auto algorithm = choose(problem, *product, request, epilogue, instead);
    if (!algorithm) return std::nullopt;
    return PreparedKernel{.name = "cublaslt." + request.op,
                          .run =
                              [this, product, algorithm = *algorithm, epilogue](const KernelArgs& args) {
                                product->run(handle_, algorithm, addresses(args.inputs, args.outputs[0], epilogue),
                                             aligned(args.scratch.data()), stream_of(*args.queue));
                              },
                          .scratch_bytes = static_cast<int64_t>(kWorkspaceBytes + kWorkspaceAlignment)};
  }

  static Addresses addresses(std::span<const TensorView> inputs, const TensorView& output,
                             const ProductEpilogue& epilogue) {
    Addresses at{.a = inputs[0].data, .b = inputs[1].data, .c = output.data};
    if (epilogue.bias) at.bias = inputs[*epilogue.bias].data;
    if (epilogue.value) at.added = inputs[*epilogue.value].data;
    return at;
  }

  // The product in scratch memory, which is not rounded there, and the program over it as a kernel of its own.
  std::optional<PreparedKernel> prepare_two_kernels(const KernelRequest& request) {
    const DType dtype = request.inputs[0].dtype == DType::kF64 ? DType::kF64 : DType::kF32;
    const TensorView between(nullptr, {dtype, request.outputs[0].shape});
    KernelRequest multiply = request;
    multiply.op = "matmul";
    multiply.inputs.resize(2);
    multiply.outputs = {between};
    auto multiplied = prepare(multiply);
    if (!multiplied) return std::nullopt;
    KernelRequest finish{.op = "fused_elementwise", .inputs = {between}, .outputs = request.outputs};
    finish.inputs.insert(finish.inputs.end(), request.inputs.begin() + 2, request.inputs.end());
    finish.attributes = {{"program", request.attributes.get_string("program")}, {"num_outputs", int64_t{1}}};
    auto finished = generated_.find(finish);
    if (!finished) return std::nullopt;
    const std::string name = multiplied->name + "+" + finished->name;
    return chain_kernels(name, std::move(*multiplied), std::move(*finished), std::move(finish.inputs));
  }

  std::optional<cublasLtMatmulAlgo_t> choose(const Problem& problem, Product& product, const KernelRequest& request,
                                             const ProductEpilogue& epilogue, const PreparedKernel* instead) {
    const std::lock_guard lock(mutex_);
    if (const auto known = chosen_.find(problem); known != chosen_.end()) return known->second;
    const auto proposals = product.proposals(handle_);
    std::optional<cublasLtMatmulAlgo_t> taken;
    if (!proposals.empty()) taken = proposals[0].algo;
    const size_t num_ways = proposals.size() + (instead != nullptr ? 1 : 0);
    if (taken && num_ways > 1 && ways_.measures) {
      const PlacedRequest placed(device_, request);
      const KernelRequest& ours = placed.request;
      const Addresses at = addresses(ours.inputs, ours.outputs[0], epilogue);
      const auto workspace_bytes = static_cast<int64_t>(kWorkspaceBytes);
      const DeviceBuffer scratch(
          device_, instead != nullptr ? std::max(instead->scratch_bytes, workspace_bytes) : workspace_bytes);
      const auto run_instead = [&](Queue& queue) {
        const ParallelFor parallel_for(1);
        instead->run({ours.inputs,
                      ours.outputs,
                      ours.attributes,
                      {static_cast<std::byte*>(scratch.data()), static_cast<size_t>(instead->scratch_bytes)},
                      parallel_for,
                      &queue});
      };
      if (instead != nullptr) {
        // A generated kernel may be compiled until it is first launched, and that must not be measured.
        const auto queue = device_.make_queue();
        run_instead(*queue);
        queue->synchronize();
      }
      const auto best = fastest(device_, num_ways, [&](size_t way, Queue& queue) {
        if (way == proposals.size()) return run_instead(queue);
        product.run(handle_, proposals[way].algo, at, scratch.data(), stream_of(queue));
      });
      taken = best && *best < proposals.size() ? std::optional(proposals[*best].algo) : std::nullopt;
    }
    chosen_[problem] = taken;
    return taken;
  }

  CudaDevice& device_;
  const KernelRegistry& generated_;
  const LibraryWays ways_;
  cublasLtHandle_t handle_ = nullptr;
  std::mutex mutex_;
  std::map<Problem, std::optional<cublasLtMatmulAlgo_t>> chosen_;
};

CublasLt load() {
  static const SharedLibrary library({"libcublasLt.so.13", "libcublasLt.so"});
  if (!library) {
    throw IoError(
        "cuda: cuBLASLt is not found ({}): install CUDA 13's libcublas, or name its folder in "
        "TESSERA_CUDA_LIBRARIES",
        library.error());
  }
  CublasLt table;
#define TESSERA_LOAD(member, function) \
  table.member = reinterpret_cast<decltype(table.member)>(library.find(TESSERA_SYMBOL(function)));
  TESSERA_CUBLASLT(TESSERA_LOAD)
#undef TESSERA_LOAD
  return table;
}

}  // namespace

const CublasLt& cublaslt() {
  static const CublasLt table = load();
  return table;
}

void add_library_products(KernelRegistry& registry, CudaDevice& device, const KernelRegistry& generated,
                          const LibraryWays& ways) {
  const auto products = std::make_shared<Products>(device, generated, ways);
  for (const char* op : {"matmul", "batch_matmul"}) {
    registry.add(op, [products](const KernelRequest& request) { return products->prepare(request); });
  }
  registry.add("fused_matmul", [products](const KernelRequest& request) { return products->prepare_fused(request); });
}

}  // namespace tessera::cuda
