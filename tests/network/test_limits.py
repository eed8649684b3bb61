"""A bucket of tokens."""

from fedchain.network.limits import TokenBucket


def test_a_bucket_never_holds_more_than_its_burst_and_a_clock_that_goes_back_fills_nothing() -> None:
    bucket = TokenBucket(1.0, 5.0, 100.0)
    assert not bucket.spends(5.1, 1e9)
    assert bucket.spends(5.0, 1e9)
    assert not bucket.spends(1.0, 0.0)
    assert bucket.spends(1.0, 1.0)


def test_what_is_borrowed_is_owed_and_silence_earns_no_more_than_the_burst() -> None:
    bucket = TokenBucket(2.0, 5.0, 0.0)
    assert bucket.borrow(5.0, 1e9) == 0.0
    assert bucket.borrow(1.0, 1e9) == 0.5
    assert bucket.borrow(0.0, 0.0) == 0.5, "a clock that goes back pays nothing"
