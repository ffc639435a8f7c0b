"""The ledger refuses to be changed, whoever asks: a bug, an admin page or a hand at psql."""

from django.db import migrations

FORWARD = """
CREATE FUNCTION billing_entry_append_only() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'the ledger is append-only: % refused', TG_OP USING ERRCODE = 'integrity_constraint_violation';
END
$$;
CREATE TRIGGER billing_entry_no_change BEFORE UPDATE OR DELETE ON billing_entry
    FOR EACH ROW EXECUTE FUNCTION billing_entry_append_only();
CREATE TRIGGER billing_entry_no_truncate BEFORE TRUNCATE ON billing_entry
    FOR EACH STATEMENT EXECUTE FUNCTION billing_entry_append_only();
"""
BACKWARD = """
DROP TRIGGER billing_entry_no_truncate ON billing_entry;
DROP TRIGGER billing_entry_no_change ON billing_entry;
DROP FUNCTION billing_entry_append_only();
"""


class Migration(migrations.Migration):
    dependencies = [("billing", "0001_initial")]
    operations = [migrations.RunSQL(FORWARD, BACKWARD)]
