// SimHeap: a priority queue in one flat array; the smallest element comes first.
#pragma once

#include <cstddef>
#include <vector>

namespace poseidon {

// Whether one pair is greater than another: by their first numbers, and by their second ones where
// these are equal. Nobody can guess the outcome for two elements of a heap, so it is worked out as
// a number, without branches.
template <typename First, typename Second>
bool IsGreater(First first, Second second, First other_first, Second other_second) {
  const auto greater = static_cast<unsigned>(first > other_first);
  const auto equal = static_cast<unsigned>(first == other_first);
  return (greater | (equal & static_cast<unsigned>(second > other_second))) != 0;
}

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
    Rise(elements_.size() - 1, element, 0);
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

  // Puts the element at `place`, which is free, or above; no higher than `top`.
  void Rise(size_t place, const T& element, size_t top) {
    while (place > top) {
      const size_t parent = (place - 1) / kChildren;
      if (!(elements_[parent] > element)) break;
      elements_[place] = elements_[parent];
      place = parent;
    }
    elements_[place] = element;
  }

  // Puts the element at `place`, which is free, or below. The free place goes down to a leaf first:
  // the element was the last one, and most of these belong near the leaves.
  void Sink(size_t place, const T& element) {
    const size_t top = place;
    while (kChildren * place + 1 < elements_.size()) {
      const size_t least = LeastChild(kChildren * place + 1);
      elements_[place] = elements_[least];
      place = least;
    }
    Rise(place, element, top);
  }

  // Of the children of which `first` is the first.
  size_t LeastChild(size_t first) const {
    if (first + kChildren > elements_.size()) {
      size_t least = first;
      for (size_t child = first + 1; child < elements_.size(); ++child) {
        if (elements_[least] > elements_[child]) least = child;
      }
      return least;
    }
    // Nobody can guess which is the least, so there are sums here instead of branches.
    const size_t left = first + (elements_[first] > elements_[first + 1] ? 1 : 0);
    const size_t right = first + 2 + (elements_[first + 2] > elements_[first + 3] ? 1 : 0);
    return left + (elements_[left] > elements_[right] ? 1 : 0) * (right - left);
  }

  std::vector<T> elements_;
};

}  // namespace poseidon
