"""SEC: security. One module a rule; each has two lines here, sorted by code."""

from __future__ import annotations

from watershed.topology.rule import Rule
from watershed.topology.rules.sec import (
    sec601_literal_secret,
    sec602_sasl_over_plaintext,
    sec603_plaintext_link,
    sec604_tls_verification_off,
    sec605_shared_credential,
    sec606_interpolation_outside_secret,
    sec607_superuser_worker,
    sec608_residency_violation,
    sec609_classified_without_filter,
    sec610_write_needed_at_source,
    sec611_missing_acl_for_worker,
    sec612_trust_store_is_key_store,
    sec613_prune_without_effect,
    sec614_protect_contradiction,
    sec615_protect_without_acls,
)

SEC_RULES: tuple[Rule, ...] = (
    sec601_literal_secret.RULE,
    sec602_sasl_over_plaintext.RULE,
    sec603_plaintext_link.RULE,
    sec604_tls_verification_off.RULE,
    sec605_shared_credential.RULE,
    sec606_interpolation_outside_secret.RULE,
    sec607_superuser_worker.RULE,
    sec608_residency_violation.RULE,
    sec609_classified_without_filter.RULE,
    sec610_write_needed_at_source.RULE,
    sec611_missing_acl_for_worker.RULE,
    sec612_trust_store_is_key_store.RULE,
    sec613_prune_without_effect.RULE,
    sec614_protect_contradiction.RULE,
    sec615_protect_without_acls.RULE,
)
