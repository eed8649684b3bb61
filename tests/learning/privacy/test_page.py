"""Each sentence of docs/privacy.md that promises something is held by tests, which are named here."""

import math
import re

import numpy as np
import pytest

from fedchain.learning.exceptions import ConfigurationError
from fedchain.learning.privacy.gaussian import epsilon_of
from fedchain.learning.privacy.noise import normals
from fedchain.learning.registry import METHODS, HyperparameterValue
from fedchain.learning.sums.secrets import Secrets
from tests.support.learning.federation import config
from tests.support.paths import DOCS, ROOT

PAGE = (DOCS / "privacy.md").read_text(encoding="utf-8")
TEXT = re.sub(r"^#.*$", "", re.sub(r"```.*?```|<!--.*?-->", "", PAGE, flags=re.DOTALL), flags=re.MULTILINE)

HELD = {
    "An ε is stated where DP-SGD is on, and nowhere else": (
        "test_noise_on_prototypes_alone_is_called_no_epsilon_anywhere"
    ),
    "its probability differs by at most a factor e^ε, but for a probability of δ": (
        "test_delta_is_what_its_definition_says test_with_dp_sgd_what_is_stated_is_more_than_the_pair_needs"
    ),
    "is 3.62 after 10 rounds, 9.36 after 50 and 14.43 after 100": "test_releases_add_up_over_the_rounds",
    "noise that would count as ε = 1.27 for the means needs more than twice that": (
        "test_noise_on_prototypes_alone_is_no_epsilon_and_is_not_called_one"
    ),
    "So `epsilon_budget` is refused there, reports and pages show no ε": (
        "test_settings_that_cannot_be_are_refused test_noise_on_prototypes_alone_is_called_no_epsilon_anywhere "
        "test_an_operator_can_read_what_was_spent"
    ),
    "so a pass costs what one release does; nothing is deducted for the shuffle": (
        "test_what_was_spent_is_in_the_ledger_and_in_the_results"
    ),
    "from the member's private randomness, and only they are amplified": (
        "test_poisson_batches_are_drawn_in_private_and_as_often_as_they_should "
        "test_poisson_batches_are_worth_what_the_divergence_of_their_densities_says"
    ),
    "Dropout and augmentation of such batches are drawn from there, too": (
        "test_under_known_dropout_one_example_would_move_a_sum_by_more_than_the_clipping_norm "
        "test_dropout_and_augmentation_of_poisson_batches_are_drawn_in_private"
    ),
    "only for what is opened of the encrypted sum": (
        "test_split_noise_adds_up_to_more_than_a_whole_one_in_the_opened_sum"
    ),
    "these are more than the liars that the founders bear": (
        "test_thresholds_that_nobody_states_withstand_all_liars_that_agreement_bears "
        "test_beside_liars_with_zeros_one_honest_holder_s_class_is_not_opened"
    ),
    "a federation of four that has grown to seven bears two liars": (
        "test_a_federation_that_grew_bears_as_many_liars_as_open_a_sum"
    ),
    "the difference was 2 to 3 % from what `fedph` posted by default": (
        "test_who_misses_a_round_is_seen_in_the_difference_of_two_openings "
        "test_models_that_still_move_blur_the_difference_and_settle"
    ),
    "classes of eight examples and more drowned it": "test_noise_hides_it_where_it_is_large",
    "`genesis new` and `simulate` say so where prototypes are encrypted": (
        "test_what_may_not_be_expected_is_said_beforehand"
    ),
    "Two members that conspire with nobody hide each other, and only each other": (
        "test_of_two_honest_holders_the_sum_is_opened_and_neither_vector"
    ),
    "follows from `private_seed`": (
        "test_secrets_follow_from_the_private_seed_and_results_from_before_keep_their_names"
    ),
    "rounded to a grid of about σ · 2⁻³²": "test_sigma_scales_it_and_the_grid_hides_the_last_bits",
    "noise is drawn more finely than that": "test_large_noise_lies_on_no_rings",
    "the noise of one number is at most 8.6 σ": "test_no_number_gets_more_noise_than_the_page_says",
    "it adds too much below ε = 8.4 and promises too much above": "test_the_classical_noise_is_too_much_or_too_little",
    "finds the same to 10⁻⁶: of 1,000 random schedules": (
        "test_totals_of_random_schedules_are_an_independent_accountants "
        "test_totals_of_poisson_batches_are_an_independent_accountants"
    ),
    "1.08 to 1.41 times that, 1.12 in the median": (
        "test_poisson_batches_cost_more_here_than_by_loss_distributions_and_never_less"
    ),
    "sooner than it would have to, and never later": (
        "test_poisson_batches_cost_more_here_than_by_loss_distributions_and_never_less"
    ),
    "then moves by at most 2 C / n_c, and gets N(0, σ²)": (
        "test_one_example_cannot_move_a_mean_further_than_is_charged_for "
        "test_means_are_of_clipped_embeddings_and_their_noise_is_in_units_of_one_example"
    ),
    "a member with no other class posts nothing, and says so": (
        "test_small_classes_are_left_out_and_a_member_with_nothing_else_is_named"
    ),
    "is measured in [Results](results.md#fedph)": "test_links_lead_somewhere",
    "every example's gradient is clipped to C = `gradient_clip`": (
        "test_long_gradients_are_clipped_before_they_are_summed test_the_noise_is_as_large_as_it_is_said_to_be"
    ),
    "have it, and `dfpl`, `fedproto` and `fedph` together with noised prototypes": (
        "test_the_methods_that_have_dp_sgd_are_those_that_the_page_names"
    ),
    "refuse it when they are chosen": (
        "test_methods_that_post_more_than_it_covers_refuse_it "
        "test_every_step_of_a_covered_method_is_clipped_and_noised "
        "test_posts_of_a_covered_method_follow_from_the_model_that_training_leaves"
    ),
    "is refused until it says so itself": (
        "test_a_method_that_is_made_of_a_covered_one_is_covered_once_it_says_so_itself"
    ),
    "Batch normalization is refused": "test_batch_normalization_is_refused_when_the_federation_is_founded",
    "computes the same value sends the same bytes again": (
        "test_the_same_prototypes_again_are_the_same_bytes_and_cost_nothing"
    ),
    "no noise is ever on two values": (
        "test_the_same_value_gets_the_same_noise_and_any_other_another "
        "test_a_model_that_was_lost_is_trained_on_other_poisson_batches"
    ),
    "durably, before the noised bytes leave the training process": (
        "test_a_release_is_on_the_disk_before_the_ledger_says_so "
        "test_a_trainer_charges_before_it_answers_and_never_twice_for_the_same_bytes"
    ),
    "is refused with the member, the round and both numbers": (
        "test_a_release_beyond_the_budget_is_refused_and_leaves_no_trace "
        "test_a_spent_budget_keeps_one_member_silent_and_the_others_go_on"
    ),
    "say beforehand for how many rounds a budget lasts": "test_what_may_not_be_expected_is_said_beforehand",
    "A post that was written but never sent counts as spent": (
        "test_a_trainer_charges_before_it_answers_and_never_twice_for_the_same_bytes"
    ),
    "charges the same post once, and sends the same bytes": (
        "test_whenever_it_is_killed_nothing_is_forgotten_and_the_same_bytes_are_sent "
        "test_every_instant_of_a_life_is_one_to_be_killed_at"
    ),
    "stops all noised posts": (
        "test_a_damaged_record_stops_everything_also_the_last_one test_who_removed_it_is_told_and_nothing_is_let_out"
    ),
    "so that nobody else can read or forge them": (
        "test_randomness_and_ledger_go_with_the_journal_and_nobody_else_can_read_them "
        "test_what_is_sealed_is_opened_by_its_own_key_for_its_own_chain_alone"
    ),
    "refuses before it writes anything": (
        "test_a_ledger_grows_and_never_shrinks test_other_randomness_is_never_exchanged"
    ),
    "and spends nothing twice": (
        "test_randomness_and_ledger_go_with_the_journal_and_nobody_else_can_read_them "
        "test_the_same_release_is_charged_once_and_another_of_the_same_phase_again"
    ),
}
"""Words of a sentence, and the tests that hold it."""

PROMISES = re.compile(
    r"\b(never|at most|at least|no noise|twice|nobody|refuse[sd]?|always|only)\b|\d %|ε = |10⁻|\d\.\d|nowhere"
)


def joined(text: str) -> str:
    return " ".join(text.split())


def sentences() -> list[str]:
    """Sentences of paragraphs and lists; everything in tables is said in sentences, too."""
    parts = (joined(part) for part in re.split(r"\n\n|\n(?=\*)", TEXT) if not part.strip().startswith("|"))
    return [sentence for part in parts for sentence in re.split(r"(?<=[.:]) (?=[A-Z`*])", part)]


def test_every_promise_is_held_by_a_test() -> None:
    promises = [sentence for sentence in sentences() if PROMISES.search(sentence)]
    assert len(promises) > 20
    assert [one for one in promises if not any(said in one for said in HELD)] == []


def test_what_tests_hold_is_still_said_and_the_tests_are_there() -> None:
    assert [said for said in HELD if joined(TEXT).count(said) != 1] == []
    there = {
        name
        for path in (ROOT / "tests").glob("**/test_*.py")
        for name in re.findall(r"^def (test_\w+)", path.read_text(encoding="utf-8"), re.MULTILINE)
    }
    assert {name for names in HELD.values() for name in names.split()} <= there


class Extreme(Secrets):
    """Its smallest uniform number, which is the largest noise."""

    def draw(self, size: int, *labels: str | int) -> bytes:
        return bytes(size)


def test_no_number_gets_more_noise_than_the_page_says() -> None:
    assert 8.5 < np.abs(normals(2, Extreme(0, b""), "update", 1)).max() < 8.6


def test_the_classical_noise_is_too_much_or_too_little() -> None:
    for epsilon, is_kept in ((0.1, True), (1.0, True), (8.4, True), (8.5, False), (20.0, False)):
        sigma = math.sqrt(2 * math.log(1.25 / 1e-5)) / epsilon
        assert (epsilon_of(1 / sigma, 1e-5) <= epsilon) == is_kept, epsilon


@pytest.mark.parametrize("method", sorted(METHODS))
def test_the_methods_that_have_dp_sgd_are_those_that_the_page_names(method: str) -> None:
    named, with_prototypes = re.findall(
        r"are added after the noise\. (.*?) have it, and (.*?) together with noised prototypes", joined(TEXT)
    )[0]
    noise: dict[str, HyperparameterValue] = {"noise": "local"} if method == "fedph" else {"prototype_noise": 1.0}
    noise |= {"prototype_source": "recompute"} if method == "fedproto" else {}
    settings = {"gradient_noise": 1.0, **(noise if f"`{method}`" in with_prototypes else {})}
    try:
        config(method, **settings).validate()
    except ConfigurationError:
        assert f"`{method}`" not in named + with_prototypes
    else:
        assert f"`{method}`" in named + with_prototypes
