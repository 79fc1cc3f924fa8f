// SimHeap: a priority queue in one flat array; the smallest element comes first.
#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

namespace poseidon {

// As std::priority_queue, but elements can be removed from the middle, and each has four children:
// half the levels, and those that are compared lie side by side in memory, which for queues larger
// than the processor's cache is a third faster. T is small and has operator>; elements that are
// equal come out in any order.
template <typename T>
class SimHeap {
 public:
  bool empty() const { return elements_.empty(); }
  const T& top() const { return elements_.front(); }

  void Push(const T& element) {
    elements_.push_back(element);
    Rise(elements_.size() - 1, element);
  }

  T Pop() {
    const T result = elements_.front();
    const T last = elements_.back();
    elements_.pop_back();
    if (!elements_.empty()) Sink(0, last);
    return result;
  }

  // Linear in the number of elements.
  template <typename Predicate>
  void RemoveIf(Predicate predicate) {
    std::erase_if(elements_, predicate);
    for (size_t i = elements_.size() / kChildren + 1; i-- > 0;) {
      if (i < elements_.size()) Sink(i, T(elements_[i]));
    }
  }

 private:
  static constexpr size_t kChildren = 4;

  // Puts the element at `place`, which is free, or above.
  void Rise(size_t place, const T& element) {
    while (place > 0) {
      const size_t parent = (place - 1) / kChildren;
      if (!(elements_[parent] > element)) break;
      elements_[place] = elements_[parent];
      place = parent;
    }
    elements_[place] = element;
  }

  // Puts the element at `place`, which is free, or below.
  void Sink(size_t place, const T& element) {
    while (true) {
      const size_t first = kChildren * place + 1;
      if (first >= elements_.size()) break;
      size_t least = first;
      const size_t end = std::min(first + kChildren, elements_.size());
      for (size_t child = first + 1; child < end; ++child) {
        if (elements_[least] > elements_[child]) least = child;
      }
      if (!(element > elements_[least])) break;
      elements_[place] = elements_[least];
      place = least;
    }
    elements_[place] = element;
  }

  std::vector<T> elements_;
};

}  // namespace poseidon
