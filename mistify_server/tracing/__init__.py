"""Traces of jobs for OpenTelemetry: from the call that starts a job to the activities of its workers."""
