#include "tessera/tensor/dlpack/dlpack.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <cstring>
#include <limits>
#include <memory>
#include <new>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "tessera/base/error.h"
#include "tessera/tensor/dlpack/dlpack_abi.h"

namespace tessera {
namespace {

using dlpack::DLManagedTensor;
using dlpack::DLManagedTensorVersioned;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::ThrowsMessage;

constexpr DlpackForm kForms[] = {DlpackForm::kUnversioned, DlpackForm::kVersioned};

// The members of another library's struct, of f32[2,3], that count how often they are let go.
struct Foreign {
  std::array<float, 16> elements{};
  std::vector<int64_t> shape{2, 3};
  std::vector<int64_t> strides{3, 1};
  int num_deleted = 0;
  DLManagedTensorVersioned managed;

  Foreign() {
    for (size_t i = 0; i < elements.size(); ++i) elements[i] = static_cast<float>(i);
    managed.version = {1, 3};
    managed.manager_ctx = this;
    managed.deleter = [](DLManagedTensorVersioned* self) { ++static_cast<Foreign*>(self->manager_ctx)->num_deleted; };
    managed.dl_tensor.data = elements.data();
    managed.dl_tensor.device = {dlpack::kCpu, 0};
    managed.dl_tensor.dtype = {dlpack::kFloat, 32, 1};
    describe();
  }
  Foreign(const Foreign&) = delete;
  Foreign& operator=(const Foreign&) = delete;

  void describe() {
    managed.dl_tensor.ndim = static_cast<int32_t>(shape.size());
    managed.dl_tensor.shape = shape.data();
    managed.dl_tensor.strides = strides.data();
  }
  Tensor take(DlpackCopy copy = DlpackCopy::kIfNeeded) { return from_dlpack(&managed, DlpackForm::kVersioned, copy); }
};

void expect_refused(Foreign& foreign, const std::string& words) {
  for (const DlpackCopy copy : {DlpackCopy::kNever, DlpackCopy::kIfNeeded, DlpackCopy::kAlways}) {
    EXPECT_THAT([&] { foreign.take(copy); }, ThrowsMessage<InvalidArgument>(HasSubstr(words)));
  }
  EXPECT_EQ(foreign.num_deleted, 0) << "the struct is still its owner's";
}

TEST(Dlpack, EveryDtypeGoesOutAndComesBackInTheSameMemory) {
  for (int i = 0; i <= static_cast<int>(DType::kU64); ++i) {
    for (const DlpackForm form : kForms) {
      const Tensor tensor = Tensor::full({static_cast<DType>(i), {2, 3}}, 1);
      const Tensor back = from_dlpack(to_dlpack(tensor, form), form, DlpackCopy::kNever);
      EXPECT_EQ(back.type(), tensor.type());
      EXPECT_EQ(back.view().data, tensor.view().data);
    }
  }
}

TEST(Dlpack, BoolsThatAreOtherBytesThan0And1AreCopiedAsOnes) {
  for (const int64_t stride : {1, 2}) {
    Foreign foreign;
    std::array<uint8_t, 8> bytes = {0, 0, 2, 2, 255, 255, 1, 1};
    foreign.managed.dl_tensor.data = bytes.data();
    foreign.managed.dl_tensor.dtype = {dlpack::kBool, 8, 1};
    foreign.shape = {8 / stride};
    foreign.strides = {stride};
    foreign.describe();
    EXPECT_THAT([&] { foreign.take(DlpackCopy::kNever); },
                ThrowsMessage<InvalidArgument>(
                    HasSubstr(stride == 1 ? "neither 0 nor 1; allow that it is copied" : "dense and row-major")));
    const Tensor taken = foreign.take();
    EXPECT_EQ(foreign.num_deleted, 1) << "nothing of it is shared";
    for (int64_t i = 0; i < taken.num_elements(); ++i) {
      EXPECT_EQ(taken.bytes()[static_cast<size_t>(i)], std::byte{i * stride >= 2}) << i;
    }
  }
}

TEST(Dlpack, AStructSaysWhatTheSpecificationHas) {
  const Tensor tensor = Tensor::zeros({DType::kBF16, {4, 0, 2}});
  auto* managed = static_cast<DLManagedTensor*>(to_dlpack(tensor, DlpackForm::kUnversioned));
  const auto& described = managed->dl_tensor;
  EXPECT_EQ(described.data, nullptr) << "of no elements";
  EXPECT_EQ(described.device.device_type, 1);
  EXPECT_EQ(described.device.device_id, 0);
  EXPECT_EQ(described.byte_offset, 0U);
  EXPECT_EQ(described.dtype, (dlpack::DLDataType{4, 16, 1}));
  EXPECT_THAT(std::vector<int64_t>(described.shape, described.shape + described.ndim), ElementsAre(4, 0, 2));
  EXPECT_THAT(std::vector<int64_t>(described.strides, described.strides + described.ndim), ElementsAre(2, 2, 1));
  release_dlpack(managed, DlpackForm::kUnversioned);

  auto* versioned = static_cast<DLManagedTensorVersioned*>(
      to_dlpack(Tensor::scalar(true), DlpackForm::kVersioned, {.is_read_only = true, .is_copied = true}));
  EXPECT_EQ(versioned->version.major, 1U);
  EXPECT_EQ(versioned->version.minor, 0U);
  EXPECT_EQ(versioned->flags, 3U);
  EXPECT_EQ(versioned->dl_tensor.ndim, 0);
  EXPECT_EQ(versioned->dl_tensor.dtype, (dlpack::DLDataType{6, 8, 1}));
  release_dlpack(versioned, DlpackForm::kVersioned);
}

TEST(Dlpack, TheUnversionedFormCannotSayReadOnly) {
  EXPECT_THAT([] { to_dlpack(Tensor::scalar(1.0F), DlpackForm::kUnversioned, {.is_read_only = true}); },
              ThrowsMessage<InvalidArgument>(HasSubstr("f32[] is read-only, which the form of before version 1.0")));
}

TEST(Dlpack, AStructKeepsTheMemoryUntilItsDeleterIsCalled) {
  for (const DlpackForm form : kForms) {
    auto storage = std::make_shared<std::array<int32_t, 2>>(std::array<int32_t, 2>{5, 6});
    const std::weak_ptr<void> kept = storage;
    void* managed = nullptr;
    {
      void* const data = storage->data();
      const auto tensor = Tensor::wrap({DType::kI32, {2}}, std::shared_ptr<void>(std::move(storage), data));
      managed = to_dlpack(tensor, form);
    }
    EXPECT_FALSE(kept.expired());
    {
      const Tensor back = from_dlpack(managed, form);
      EXPECT_THAT(back.values<int32_t>(), ElementsAre(5, 6));
    }
    EXPECT_TRUE(kept.expired());
  }
}

TEST(Dlpack, TheLastTensorCallsTheDeleterOnce) {
  Foreign foreign;
  {
    const Tensor first = foreign.take(DlpackCopy::kNever);
    EXPECT_EQ(first.type(), (Type{DType::kF32, {2, 3}}));
    foreign.elements[4] = 40;
    const Tensor second = first.reshaped({6});
    EXPECT_THAT(second.values<float>(), ElementsAre(0, 1, 2, 3, 40, 5));
    EXPECT_EQ(foreign.num_deleted, 0);
  }
  EXPECT_EQ(foreign.num_deleted, 1);
}

TEST(Dlpack, ADeleterMayBeNull) {
  Foreign foreign;
  foreign.managed.deleter = nullptr;
  EXPECT_THAT(foreign.take().values<float>(), ElementsAre(0, 1, 2, 3, 4, 5));
  release_dlpack(&foreign.managed, DlpackForm::kVersioned);
}

TEST(Dlpack, OffsetsAndStridesSayWhereElementsLie) {
  Foreign foreign;
  foreign.managed.dl_tensor.byte_offset = 8;
  EXPECT_THAT(foreign.take(DlpackCopy::kNever).values<float>(), ElementsAre(2, 3, 4, 5, 6, 7));
  foreign.managed.dl_tensor.strides = nullptr;
  EXPECT_THAT(foreign.take(DlpackCopy::kNever).values<float>(), ElementsAre(2, 3, 4, 5, 6, 7));
  EXPECT_EQ(foreign.num_deleted, 2);
}

TEST(Dlpack, WhatCannotBeSharedIsCopiedWhereThatIsAllowed) {
  struct Case {
    std::vector<int64_t> shape, strides;
    uint64_t byte_offset;
    uint64_t flags;
    std::vector<float> elements;
    const char* reason;
  };
  const std::vector<Case> cases = {
      {{3, 2}, {1, 3}, 0, 0, {0, 3, 1, 4, 2, 5}, "do not lie dense"},
      {{2, 2}, {0, 1}, 4, 0, {1, 2, 1, 2}, "do not lie dense"},
      {{3}, {-2}, 16, 0, {4, 2, 0}, "do not lie dense"},
      {{2}, {1}, 0, dlpack::kIsReadOnly, {0, 1}, "read-only"},
      {{2}, {1}, 0, dlpack::kIsReadOnly | dlpack::kIsCopied, {0, 1}, "read-only"},
  };
  for (const Case& c : cases) {
    Foreign foreign;
    foreign.shape = c.shape;
    foreign.strides = c.strides;
    foreign.describe();
    foreign.managed.dl_tensor.byte_offset = c.byte_offset;
    foreign.managed.flags = c.flags;
    EXPECT_THAT([&] { foreign.take(DlpackCopy::kNever); }, ThrowsMessage<InvalidArgument>(HasSubstr(c.reason)));
    EXPECT_EQ(foreign.num_deleted, 0);
    for (const DlpackCopy copy : {DlpackCopy::kIfNeeded, DlpackCopy::kAlways}) {
      foreign.num_deleted = 0;
      const Tensor copied = foreign.take(copy);
      EXPECT_EQ(foreign.num_deleted, 1) << "at once";
      EXPECT_THAT(copied.values<float>(), testing::ElementsAreArray(c.elements));
    }
  }
}

TEST(Dlpack, UnalignedElementsAreCopiedByteByByte) {
  for (const bool is_dense : {true, false}) {
    Foreign foreign;
    std::vector<std::byte> bytes(64);
    const float values[] = {1, 2, 3, 4};
    std::memcpy(bytes.data() + 1, values, sizeof values);
    foreign.shape = {2, 2};
    foreign.strides = is_dense ? std::vector<int64_t>{2, 1} : std::vector<int64_t>{1, 2};
    foreign.describe();
    foreign.managed.dl_tensor.data = bytes.data();
    foreign.managed.dl_tensor.byte_offset = 1;
    EXPECT_THAT([&] { foreign.take(DlpackCopy::kNever); },
                ThrowsMessage<InvalidArgument>(HasSubstr(is_dense ? "no multiple of an element's size" : "dense")));
    const auto wanted = is_dense ? std::vector<float>{1, 2, 3, 4} : std::vector<float>{1, 3, 2, 4};
    EXPECT_THAT(foreign.take().values<float>(), testing::ElementsAreArray(wanted));
  }
}

TEST(Dlpack, ACopyMadeForTheConsumerIsNotCopiedAgain) {
  Foreign foreign;
  foreign.managed.flags = dlpack::kIsCopied;
  EXPECT_EQ(foreign.take(DlpackCopy::kAlways).view().data, foreign.elements.data());
  foreign.managed.flags = 0;
  EXPECT_NE(foreign.take(DlpackCopy::kAlways).view().data, foreign.elements.data());
  EXPECT_EQ(foreign.num_deleted, 2);
}

TEST(Dlpack, NoElementsNeedNoMemory) {
  Foreign foreign;
  foreign.shape = {0, 3};
  foreign.strides = {7, -9};
  foreign.describe();
  foreign.managed.dl_tensor.data = nullptr;
  foreign.managed.flags = dlpack::kIsReadOnly;
  EXPECT_EQ(foreign.take(DlpackCopy::kNever).type(), (Type{DType::kF32, {0, 3}}));
  EXPECT_EQ(foreign.num_deleted, 1);
}

TEST(Dlpack, ANumberHasNoDims) {
  Foreign foreign;
  foreign.shape = {};
  foreign.strides = {};
  foreign.describe();
  foreign.managed.dl_tensor.shape = nullptr;
  foreign.managed.dl_tensor.strides = nullptr;
  foreign.managed.dl_tensor.byte_offset = 12;
  EXPECT_EQ(foreign.take(DlpackCopy::kNever).item(), 3);
}

TEST(Dlpack, DimsOfOneElementMayHaveAnyStride) {
  Foreign foreign;
  foreign.shape = {1, 3, 1};
  foreign.strides = {std::numeric_limits<int64_t>::max(), 1, std::numeric_limits<int64_t>::min()};
  foreign.describe();
  EXPECT_THAT(foreign.take(DlpackCopy::kNever).values<float>(), ElementsAre(0, 1, 2));
}

TEST(Dlpack, MemoryThatTheHostDoesNotReadIsRefusedByName) {
  Foreign foreign;
  for (const auto& [type, words] : {std::pair<int32_t, const char*>{2, "in that of CUDA:1"},
                                    {13, "CUDAManaged:1"},
                                    {10, "ROCm:1"},
                                    {5, "device type 5:1"},
                                    {99, "device type 99:1"},
                                    {-1, "device type -1:1"}}) {
    foreign.managed.dl_tensor.device = {type, 1};
    expect_refused(foreign, words);
  }
  for (const int32_t type : {dlpack::kCudaHost, dlpack::kRocmHost}) {
    foreign.managed.dl_tensor.device = {type, 0};
    EXPECT_EQ(foreign.take(DlpackCopy::kNever).values<float>()[1], 1);
  }
}

TEST(Dlpack, WhatIsNoTensorIsRefused) {
  const int64_t large = int64_t{1} << 40;
  const int64_t most = std::numeric_limits<int64_t>::max();
  const auto with = [](auto change, const std::string& words) {
    Foreign foreign;
    change(foreign);
    expect_refused(foreign, words);
  };
  const auto with_dtype = [&](dlpack::DLDataType dtype, const std::string& words) {
    with([&](Foreign& f) { f.managed.dl_tensor.dtype = dtype; }, words);
  };
  const auto with_shape = [&](std::vector<int64_t> shape, std::vector<int64_t> strides, const std::string& words) {
    with(
        [&](Foreign& f) {
          f.shape = std::move(shape);
          f.strides = std::move(strides);
          f.describe();
        },
        words);
  };
  with_dtype({dlpack::kFloat, 32, 4}, "float of 32 bits and 4 lanes");
  with_dtype({dlpack::kFloat, 32, 0}, "0 lanes");
  with_dtype({dlpack::kFloat, 128, 1}, "float of 128 bits");
  with_dtype({dlpack::kInt, 4, 1}, "int of 4 bits");
  with_dtype({dlpack::kBool, 1, 1}, "bool of 1 bits");
  with_dtype({5, 64, 1}, "complex of 64 bits");
  with_dtype({3, 64, 1}, "opaque handle of 64 bits");
  with_dtype({200, 8, 1}, "type code 200 of 8 bits");
  with([](Foreign& f) { f.managed.dl_tensor.ndim = -1; }, "0 to 8 dims, got -1");
  with([](Foreign& f) { f.managed.dl_tensor.ndim = 9; }, "0 to 8 dims, got 9");
  with([](Foreign& f) { f.managed.dl_tensor.shape = nullptr; }, "must have a shape");
  with([](Foreign& f) { f.managed.dl_tensor.data = nullptr; }, "f32[2,3] must have memory");
  with([](Foreign& f) { f.managed.dl_tensor.byte_offset = std::numeric_limits<uint64_t>::max(); }, "all addresses");
  with([](Foreign& f) { f.managed.dl_tensor.byte_offset = uint64_t{1} << 63; }, "all addresses");
  with([](Foreign& f) { f.managed.version = {2, 0}; }, "version 1.x is needed, got 2.0: ask for max_version=(1, 0)");
  with_shape({2, -3}, {3, 1}, "at least 0, got -3 in dim 1");
  with_shape({large, large}, {large, 1}, "more elements than an int64 counts");
  with_shape({0, large, large}, {1, 1, 1}, "more elements than an int64 counts");
  with_shape({2, 2}, {most, 1}, "outside of all addresses");
  with_shape({2, 2}, {-most, 1}, "outside of all addresses");
  with_shape({3, 2}, {most / 2 + 2, 1}, "outside of all addresses");
  with_shape({2}, {-(int64_t{1} << 52)}, "outside of all addresses");
  with_shape({int64_t{1} << 58}, {1}, "outside of all addresses");
  for (const DlpackForm form : kForms) {
    EXPECT_THAT([&] { from_dlpack(nullptr, form); }, ThrowsMessage<InvalidArgument>(HasSubstr("null pointer")));
    EXPECT_THAT([&] { release_dlpack(nullptr, form); }, ThrowsMessage<InvalidArgument>(HasSubstr("null pointer")));
  }
}

TEST(Dlpack, ABroadcastThatNoMemoryHoldsIsRefusedAndStaysItsOwners) {
  Foreign foreign;
  foreign.shape = {int64_t{1} << 55};
  foreign.strides = {0};
  foreign.describe();
  EXPECT_THROW(foreign.take(), std::bad_alloc);
  EXPECT_EQ(foreign.num_deleted, 0);
}

TEST(Dlpack, AnyNumbersGiveATensorOrAnErrorAndOneDeletion) {
  const uint64_t seed = 20240601;
  SCOPED_TRACE(seed);
  std::mt19937_64 random(seed);
  const std::vector<int64_t> sizes = {0,
                                      1,
                                      2,
                                      3,
                                      -1,
                                      int64_t{1} << 31,
                                      int64_t{1} << 61,
                                      std::numeric_limits<int64_t>::max(),
                                      std::numeric_limits<int64_t>::min()};
  const auto size = [&] { return sizes[random() % sizes.size()]; };
  int num_taken = 0;
  for (int i = 0; i < 20000; ++i) {
    Foreign foreign;
    const auto ndim = random() % 4;
    foreign.shape.resize(ndim);
    foreign.strides.resize(ndim);
    for (uint64_t dim = 0; dim < ndim; ++dim) {
      foreign.shape[dim] = size();
      foreign.strides[dim] = size();
    }
    foreign.describe();
    auto& described = foreign.managed.dl_tensor;
    if (random() % 4 == 0) described.strides = nullptr;
    if (random() % 8 == 0) described.data = nullptr;
    if (random() % 8 == 0) described.ndim = std::array{-1, 0, 9, std::numeric_limits<int32_t>::min()}[random() % 4];
    if (random() % 4 == 0) described.byte_offset = static_cast<uint64_t>(size());
    if (random() % 2 == 0) {
      // Bools are read even where they are shared.
      const auto code = static_cast<uint8_t>(random() % 8);
      described.dtype = {code == dlpack::kBool ? uint8_t{dlpack::kInt} : code, static_cast<uint8_t>(8 << random() % 4),
                         static_cast<uint16_t>(random() % 8 == 0 ? 2 : 1)};
    }
    try {
      const Tensor taken = foreign.take(DlpackCopy::kNever);  // what is copied is read, which no check makes safe
      EXPECT_EQ(taken.ndim(), described.ndim);
      ++num_taken;
      EXPECT_EQ(foreign.num_deleted, 0);
    } catch (const InvalidArgument&) {
      EXPECT_EQ(foreign.num_deleted, 0);
      release_dlpack(&foreign.managed, DlpackForm::kVersioned);
    }
    EXPECT_EQ(foreign.num_deleted, 1);
  }
  EXPECT_GT(num_taken, 500);
  EXPECT_LT(num_taken, 15000);
}

}  // namespace
}  // namespace tessera
