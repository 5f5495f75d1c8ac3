{{- define "kev.name" -}}{{ .Release.Name | trunc 40 | trimSuffix "-" }}{{- end }}

{{- define "kev.labels" -}}
app.kubernetes.io/name: kev
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
app.kubernetes.io/component: {{ .component }}
{{- end }}

{{- define "kev.selector" -}}
app.kubernetes.io/name: kev
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .component }}
{{- end }}

{{- define "kev.image" -}}
{{- $registry := .root.Values.image.registry -}}
{{ if $registry }}{{ trimSuffix "/" $registry }}/{{ end }}kev-{{ .component }}:{{ .tag | default .root.Values.image.tag }}
{{- end }}

{{- define "kev.natsUrl" -}}
{{- if .Values.nats.embedded }}nats://{{ include "kev.name" . }}-nats:4222{{ else }}{{ required "nats.url: must be given when nats.embedded is false" .Values.nats.url }}{{ end }}
{{- end }}

{{- define "kev.secret" -}}{{ .Values.passwords.existingSecret | default (printf "%s-bus" (include "kev.name" .)) }}{{- end }}

{{/* What all pods have: an ordinary user, no token, no service links in the environment. */}}
{{- define "kev.pod" -}}
automountServiceAccountToken: false
enableServiceLinks: false
{{- with .root.Values.image.pullSecrets }}
imagePullSecrets: {{- toYaml . | nindent 2 }}
{{- end }}
securityContext:
  runAsNonRoot: true
  runAsUser: 10001
  runAsGroup: 10001
  fsGroup: 10001
  seccompProfile: { type: RuntimeDefault }
{{- if .root.Values.topologySpread }}
topologySpreadConstraints:
  - maxSkew: 1
    topologyKey: kubernetes.io/hostname
    whenUnsatisfiable: ScheduleAnyway
    labelSelector:
      matchLabels: {{- include "kev.selector" . | nindent 8 }}
{{- end }}
{{- end }}

{{- define "kev.annotations" -}}
checksum/config: {{ include (print .Template.BasePath "/config.yaml") . | sha256sum }}
{{- with .Values.podAnnotations }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{- define "kev.container" -}}
imagePullPolicy: {{ .Values.image.pullPolicy }}
securityContext:
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  capabilities: { drop: [ALL] }
{{- end }}

{{/* The bus user of a component. */}}
{{- define "kev.busEnvironment" -}}
- name: KEV_BUS_USER
  value: {{ .component }}
- name: KEV_BUS_PASSWORD
  valueFrom: { secretKeyRef: { name: {{ include "kev.secret" .root }}, key: {{ .component }} } }
{{- end }}

{{- define "kev.mounts" -}}
- { name: config, mountPath: /opt/kev/etc, readOnly: true }
- { name: tmp, mountPath: /tmp }
{{- end }}

{{- define "kev.volumes" -}}
- { name: config, configMap: { name: {{ include "kev.name" . }}-config } }
- { name: tmp, emptyDir: {} }
{{- end }}

{{/* gRPC probes: alive while the port answers, ready while health says SERVING. */}}
{{- define "kev.grpcProbes" -}}
startupProbe:
  tcpSocket: { port: {{ .port }} }
  periodSeconds: 2
  failureThreshold: {{ .patience | default 60 }}
readinessProbe:
  grpc: { port: {{ .port }} }
  periodSeconds: 5
  timeoutSeconds: 3
  failureThreshold: 2
livenessProbe:
  tcpSocket: { port: {{ .port }} }
  periodSeconds: 10
  timeoutSeconds: 3
  failureThreshold: 6
{{- end }}
