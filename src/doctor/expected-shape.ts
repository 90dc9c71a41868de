// What the migrations make, a line for each object: written by `npx vitest run test/doctor/expected-shape.test.ts -u`.
export const EXPECTED_SHAPE = `
column async_audit.action := text NOT NULL
column async_audit.actor := text NOT NULL
column async_audit.at := timestamp with time zone NOT NULL DEFAULT clock_timestamp()
column async_audit.detail := jsonb NOT NULL DEFAULT '{}'::jsonb
column async_audit.id := bigint NOT NULL GENERATED ALWAYS AS IDENTITY
column async_audit.subject := text
column async_completed_tasks.attempt_count := integer NOT NULL
column async_completed_tasks.completed_at := timestamp with time zone NOT NULL DEFAULT now()
column async_completed_tasks.created_at := timestamp with time zone NOT NULL
column async_completed_tasks.errors := jsonb NOT NULL
column async_completed_tasks.headers := jsonb NOT NULL
column async_completed_tasks.id := bigint NOT NULL
column async_completed_tasks.keep_until := timestamp with time zone NOT NULL
column async_completed_tasks.payload := jsonb NOT NULL
column async_completed_tasks.payload_revision := integer NOT NULL
column async_completed_tasks.queue := text NOT NULL
column async_completed_tasks.result := jsonb
column async_completed_tasks.started_at := timestamp with time zone
column async_completed_tasks.task_type := text NOT NULL
column async_cron_ticks.entry := text NOT NULL
column async_cron_ticks.outcome := text NOT NULL
column async_cron_ticks.schedule := text NOT NULL
column async_cron_ticks.taken_at := timestamp with time zone NOT NULL DEFAULT clock_timestamp()
column async_cron_ticks.task_id := bigint
column async_cron_ticks.tick := timestamp with time zone NOT NULL
column async_queues.changed_at := timestamp with time zone NOT NULL DEFAULT now()
column async_queues.name := text NOT NULL
column async_queues.paused_at := timestamp with time zone
column async_queues.weight := integer
column async_replicas.busy := integer NOT NULL
column async_replicas.clock_offset_ms := double precision
column async_replicas.host := text NOT NULL
column async_replicas.id := uuid NOT NULL
column async_replicas.overrun := integer NOT NULL
column async_replicas.pid := integer NOT NULL
column async_replicas.queues := text[]
column async_replicas.roles := text[] NOT NULL
column async_replicas.running := jsonb NOT NULL
column async_replicas.seen_at := timestamp with time zone NOT NULL DEFAULT now()
column async_replicas.settled := jsonb NOT NULL
column async_replicas.slots := integer NOT NULL
column async_replicas.started_at := timestamp with time zone NOT NULL DEFAULT now()
column async_replicas.version := text NOT NULL
column async_task_keys.enqueued_at := timestamp with time zone NOT NULL
column async_task_keys.key := bytea NOT NULL
column async_task_keys.task_id := bigint
column async_task_keys.window_ends_at := timestamp with time zone
column async_task_types.ceiling_ms := bigint NOT NULL
column async_task_types.cursor_secrets := jsonb
column async_task_types.max_attempts := integer NOT NULL
column async_task_types.payload_revision := integer NOT NULL
column async_task_types.registered_at := timestamp with time zone NOT NULL DEFAULT now()
column async_task_types.secrets := jsonb
column async_task_types.task_type := text NOT NULL
column async_tasks.attempt_count := integer NOT NULL DEFAULT 0
column async_tasks.ceiling_ms := bigint
column async_tasks.created_at := timestamp with time zone NOT NULL DEFAULT now()
column async_tasks.cursor := jsonb
column async_tasks.errors := jsonb NOT NULL DEFAULT '[]'::jsonb
column async_tasks.exhausted := boolean NOT NULL GENERATED ALWAYS AS ((retired OR (attempt_count >= max_attempts))) STORED
column async_tasks.headers := jsonb NOT NULL DEFAULT '{}'::jsonb
column async_tasks.id := bigint NOT NULL GENERATED ALWAYS AS IDENTITY
column async_tasks.last_attempted_at := timestamp with time zone
column async_tasks.last_error := text
column async_tasks.lease_expires_at := timestamp with time zone
column async_tasks.lease_token := uuid
column async_tasks.max_attempts := integer NOT NULL DEFAULT 20
column async_tasks.payload := jsonb NOT NULL
column async_tasks.payload_revision := integer NOT NULL DEFAULT 1
column async_tasks.progress := jsonb
column async_tasks.queue := text NOT NULL DEFAULT 'default'::text
column async_tasks.retention_ms := bigint
column async_tasks.retired := boolean NOT NULL DEFAULT false
column async_tasks.run_at := timestamp with time zone NOT NULL DEFAULT now()
column async_tasks.task_type := text NOT NULL
column async_tasks.unique_key := bytea
constraint async_audit.async_audit_action_check := CHECK ((action <> ''::text))
constraint async_audit.async_audit_actor_check := CHECK ((actor <> ''::text))
constraint async_audit.async_audit_pkey := PRIMARY KEY (id)
constraint async_completed_tasks.async_completed_tasks_pkey := PRIMARY KEY (id)
constraint async_cron_ticks.async_cron_ticks_entry_check := CHECK ((entry <> ''::text))
constraint async_cron_ticks.async_cron_ticks_outcome_check := CHECK ((outcome = ANY (ARRAY['enqueued'::text, 'skipped'::text, 'since'::text])))
constraint async_cron_ticks.async_cron_ticks_pkey := PRIMARY KEY (entry, tick)
constraint async_queues.async_queues_name_check := CHECK ((name <> ''::text))
constraint async_queues.async_queues_pkey := PRIMARY KEY (name)
constraint async_queues.async_queues_weight_check := CHECK (((weight >= 1) AND (weight <= 1000)))
constraint async_replicas.async_replicas_pkey := PRIMARY KEY (id)
constraint async_task_keys.async_task_keys_key_check := CHECK ((octet_length(key) = 32))
constraint async_task_keys.async_task_keys_pkey := PRIMARY KEY (key)
constraint async_task_types.async_task_types_payload_revision_check := CHECK ((payload_revision >= 1))
constraint async_task_types.async_task_types_pkey := PRIMARY KEY (task_type, payload_revision)
constraint async_tasks.async_tasks_attempt_count_check := CHECK ((attempt_count >= 0))
constraint async_tasks.async_tasks_ceiling_is_positive := CHECK ((ceiling_ms > 0))
constraint async_tasks.async_tasks_lease_is_whole := CHECK (((lease_token IS NULL) = (lease_expires_at IS NULL)))
constraint async_tasks.async_tasks_max_attempts_check := CHECK ((max_attempts >= 1))
constraint async_tasks.async_tasks_payload_revision_check := CHECK ((payload_revision >= 1))
constraint async_tasks.async_tasks_pkey := PRIMARY KEY (id)
constraint async_tasks.async_tasks_queue_check := CHECK ((queue <> ''::text))
constraint async_tasks.async_tasks_retention_is_positive := CHECK ((retention_ms > 0))
constraint async_tasks.async_tasks_task_type_check := CHECK ((task_type <> ''::text))
function enqueue(task_type text, payload jsonb, queue text, run_at timestamp with time zone, delay interval, max_attempts integer, headers jsonb, payload_revision integer, unique_key text, unique_while text, unique_window interval, on_conflict text, timeout interval, retention interval, wake text) := RETURNS TABLE(id bigint, status text) SECURITY DEFINER SET enable_seqscan=off SET search_path=<schema>, pg_temp BODY aaaa47196d52776c6398f3d929f5a93c
index async_completed_tasks_keep_until := CREATE INDEX async_completed_tasks_keep_until ON async_completed_tasks USING btree (keep_until)
index async_completed_tasks_type := CREATE INDEX async_completed_tasks_type ON async_completed_tasks USING btree (task_type, queue)
index async_tasks_discovery := CREATE INDEX async_tasks_discovery ON async_tasks USING btree (queue, run_at, id) WHERE (NOT exhausted)
index async_tasks_exhausted := CREATE INDEX async_tasks_exhausted ON async_tasks USING btree (id) WHERE exhausted
index async_tasks_exhausted_type := CREATE INDEX async_tasks_exhausted_type ON async_tasks USING btree (task_type, queue, run_at) WHERE exhausted
index async_tasks_unique_key := CREATE INDEX async_tasks_unique_key ON async_tasks USING btree (unique_key) WHERE (unique_key IS NOT NULL)
options async_audit :=
options async_completed_tasks := autovacuum_analyze_scale_factor=0.0, autovacuum_analyze_threshold=5000, autovacuum_vacuum_insert_scale_factor=0.0, autovacuum_vacuum_insert_threshold=20000
options async_cron_ticks := autovacuum_vacuum_scale_factor=0.0, autovacuum_vacuum_threshold=2000
options async_queues :=
options async_replicas := autovacuum_vacuum_scale_factor=0.0, autovacuum_vacuum_threshold=1000, fillfactor=20
options async_task_keys := autovacuum_analyze_scale_factor=0.0, autovacuum_analyze_threshold=5000, autovacuum_vacuum_insert_scale_factor=0.0, autovacuum_vacuum_insert_threshold=20000, autovacuum_vacuum_scale_factor=0.0, autovacuum_vacuum_threshold=2000, fillfactor=70
options async_task_types :=
options async_tasks := autovacuum_analyze_scale_factor=0.0, autovacuum_analyze_threshold=5000, autovacuum_vacuum_cost_delay=0, autovacuum_vacuum_insert_scale_factor=0.0, autovacuum_vacuum_insert_threshold=20000, autovacuum_vacuum_scale_factor=0.0, autovacuum_vacuum_threshold=2000, fillfactor=70
`;
