#include "tessera/train/logs/event_message.h"

#include <array>
#include <bit>
#include <span>

#include "tessera/base/files/crc32c.h"
#include "tessera/base/files/protobuf_wire.h"

namespace tessera::train {
namespace {

constexpr int64_t kDataOfTensors = 2;

std::string packed(const std::vector<double>& values) {
  std::string bytes;
  for (const double value : values) append_fixed(bytes, std::bit_cast<uint64_t>(value));
  return bytes;
}

// A Summary's metadata for a plugin that reads tensors.
std::string tensor_metadata(std::string_view plugin, std::string_view content) {
  std::string data;
  append_bytes_field(data, 1, plugin);
  append_bytes_field(data, 2, content);
  std::string metadata;
  append_bytes_field(metadata, 1, data);
  append_number_field(metadata, 4, kDataOfTensors);
  return metadata;
}

// A tensor of one element: `content` in the field that its dtype has.
std::string one_element(int64_t dtype, int field, std::string_view content) {
  std::string dim;
  append_number_field(dim, 1, 1);
  std::string shape;
  append_bytes_field(shape, 2, dim);
  std::string tensor;
  append_number_field(tensor, 1, dtype);
  append_bytes_field(tensor, 2, shape);
  append_bytes_field(tensor, field, content);
  return tensor;
}

// The hparams plugin looks at the metadata only.
std::string empty_tensor() {
  std::string zero;
  append_fixed(zero, std::bit_cast<uint32_t>(0.0F));
  return one_element(1, 5, zero);
}

std::string of_hparams(int field, const std::string& message) {
  std::string data;
  append_number_field(data, 1, 0);
  append_bytes_field(data, field, message);
  return tensor_metadata("hparams", data);
}

std::string begin_event(double wall_time, int64_t step) {
  std::string event;
  append_double_field(event, 1, wall_time);
  append_number_field(event, 2, step);
  return event;
}

uint32_t masked_checksum(std::string_view bytes) {
  return std::rotr(crc32c(std::as_bytes(std::span(bytes))), 15) + 0xa282ead8U;
}

}  // namespace

void EventSummary::add_value(std::string_view tag, int kind, std::string_view content, std::string_view metadata) {
  std::string value;
  append_bytes_field(value, 1, tag);
  if (!metadata.empty()) append_bytes_field(value, 9, metadata);
  append_bytes_field(value, kind, content);
  append_bytes_field(bytes_, 1, value);
}

void EventSummary::add_scalar(std::string_view tag, double number) {
  std::string value;
  append_bytes_field(value, 1, tag);
  append_float_field(value, 2, static_cast<float>(number));
  append_bytes_field(bytes_, 1, value);
}

void EventSummary::add_histogram(std::string_view tag, const Histogram& histogram) {
  std::string message;
  append_double_field(message, 1, histogram.min);
  append_double_field(message, 2, histogram.max);
  append_double_field(message, 3, histogram.num);
  append_double_field(message, 4, histogram.sum);
  append_double_field(message, 5, histogram.sum_squares);
  append_bytes_field(message, 6, packed(histogram.limits));
  append_bytes_field(message, 7, packed(histogram.counts));
  add_value(tag, 5, message);
  if (histogram.num_non_finite > 0) {
    add_scalar(std::string(tag) + "/non_finite", static_cast<double>(histogram.num_non_finite));
  }
}

void EventSummary::add_text(std::string_view tag, std::string_view text) {
  add_value(tag, 8, one_element(7, 8, text), tensor_metadata("text", ""));
}

void EventSummary::add_image(std::string_view tag, const EncodedImage& image) {
  std::string message;
  append_number_field(message, 1, image.height);
  append_number_field(message, 2, image.width);
  append_number_field(message, 3, image.num_channels);
  append_bytes_field(message, 4, image.bytes);
  add_value(tag, 4, message);
}

void EventSummary::add_session_start(const HyperParameters& parameters, double wall_time) {
  std::string info;
  for (const auto& [name, parameter] : parameters) {
    std::string value;
    if (const auto* truth = std::get_if<bool>(&parameter)) append_number_field(value, 4, *truth ? 1 : 0);
    if (const auto* number = std::get_if<double>(&parameter)) append_double_field(value, 2, *number);
    if (const auto* text = std::get_if<std::string>(&parameter)) append_bytes_field(value, 3, *text);
    std::string entry;
    append_bytes_field(entry, 1, name);
    append_bytes_field(entry, 2, value);
    append_bytes_field(info, 1, entry);
  }
  append_double_field(info, 5, wall_time);
  add_value("_hparams_/session_start_info", 8, empty_tensor(), of_hparams(3, info));
}

void EventSummary::add_session_end(bool has_failed, double wall_time) {
  std::string info;
  append_number_field(info, 1, has_failed ? 2 : 1);
  append_double_field(info, 2, wall_time);
  add_value("_hparams_/session_end_info", 8, empty_tensor(), of_hparams(4, info));
}

std::string version_event(double wall_time) {
  std::string event;
  append_double_field(event, 1, wall_time);
  append_bytes_field(event, 3, "brain.Event:2");
  return event;
}

std::string restart_event(double wall_time, int64_t step) {
  std::string log;
  append_number_field(log, 1, 1);
  std::string event = begin_event(wall_time, step);
  append_bytes_field(event, 7, log);
  return event;
}

std::string summary_event(double wall_time, int64_t step, const EventSummary& summary) {
  std::string event = begin_event(wall_time, step);
  append_bytes_field(event, 5, summary.bytes());
  return event;
}

std::string graph_event(double wall_time, std::string_view graph) {
  std::string event;
  append_double_field(event, 1, wall_time);
  append_bytes_field(event, 4, graph);
  return event;
}

std::string event_record(std::string_view content) {
  std::string length;
  append_fixed(length, static_cast<uint64_t>(content.size()));
  std::string record = length;
  append_fixed(record, masked_checksum(length));
  record += content;
  append_fixed(record, masked_checksum(content));
  return record;
}

}  // namespace tessera::train
