{{/* basalt.base: a file of the kustomize base or of one of its overlays (the links in base/), in the namespace of the release. */}}
{{- define "basalt.base" -}}
{{- $root := index . 0 -}}
{{- $root.Files.Get (printf "base/%s" (index . 1)) | replace "basalt-system" $root.Release.Namespace -}}
{{- end }}

{{/* basalt.image: repository:tag, or repository@digest. */}}
{{- define "basalt.image" -}}
{{- $tag := .tag | default .appVersion -}}
{{ .repository }}{{ ternary "@" ":" (hasPrefix "sha256:" $tag) }}{{ $tag }}
{{- end }}

{{/* basalt.etcd.hosts: the members of the control store that the chart runs, as a JSON list. */}}
{{- define "basalt.etcd.hosts" -}}
{{- $hosts := list -}}
{{- range $i := until (int .Values.etcd.replicas) -}}
{{- $hosts = append $hosts (printf "https://basalt-etcd-%d.basalt-etcd.%s.svc" $i $.Release.Namespace) -}}
{{- end -}}
{{ toJson $hosts }}
{{- end }}

{{/* basalt.etcd.endpoints: what the flag --etcd is set to. */}}
{{- define "basalt.etcd.endpoints" -}}
{{- $endpoints := .Values.etcd.endpoints -}}
{{- if not $endpoints -}}
{{- range include "basalt.etcd.hosts" . | fromJsonArray }}{{ $endpoints = append $endpoints (printf "%s:2379" .) }}{{ end -}}
{{- end -}}
{{ join "," $endpoints }}
{{- end }}

{{/* basalt.gomemlimit: 900 MiB for each GiB of the memory limit, which the schema requires in Mi or Gi. */}}
{{- define "basalt.gomemlimit" -}}
{{- $n := regexFind "^[0-9]+" . | int64 -}}
{{ if hasSuffix "Gi" . }}{{ mul $n 900 }}{{ else }}{{ div (mul $n 900) 1024 }}{{ end }}MiB
{{- end }}

{{/* basalt.pod: what the pods of a component have in common. The list is: root, the name of the component, its values. */}}
{{- define "basalt.pod" -}}
{{- $root := index . 0 }}{{ $name := index . 1 }}{{ $values := index . 2 -}}
securityContext: {runAsNonRoot: true, runAsUser: 10001, fsGroup: 10001, seccompProfile: {type: RuntimeDefault}}
{{- with $root.Values.imagePullSecrets }}
imagePullSecrets:
{{- range . }}
- name: {{ . }}
{{- end }}
{{- end }}
{{- with $values.nodeSelector }}
nodeSelector: {{ toYaml . | nindent 2 }}
{{- end }}
{{- with $values.tolerations }}
tolerations: {{ toYaml . | nindent 0 }}
{{- end }}
{{- with $values.topologySpreadConstraints }}
topologySpreadConstraints:
{{- range . }}
- {{ merge (dict) . (dict "labelSelector" (dict "matchLabels" (dict "app.kubernetes.io/name" $name))) | toYaml | nindent 2 | trim }}
{{- end }}
{{- end }}
{{- end }}

{{/* basalt.metadata: that of the pods of a component. The list is: root, the name of the component. */}}
{{- define "basalt.metadata" -}}
{{- $root := index . 0 }}{{ $name := index . 1 -}}
metadata:
  labels: {{ merge (dict "app.kubernetes.io/name" $name) $root.Values.podLabels | toYaml | nindent 4 }}
  {{- with $root.Values.podAnnotations }}
  annotations: {{ toYaml . | nindent 4 }}
  {{- end }}
{{- end }}

{{/* basalt.affinity: that of the values, else preferably not two on one node. */}}
{{- define "basalt.affinity" -}}
{{- $name := index . 0 }}{{ $affinity := index . 1 -}}
{{- if $affinity -}}
{{ toYaml $affinity }}
{{- else -}}
podAntiAffinity:
  preferredDuringSchedulingIgnoredDuringExecution:
  - weight: 100
    podAffinityTerm:
      topologyKey: kubernetes.io/hostname
      labelSelector:
        matchLabels: {app.kubernetes.io/name: {{ $name }}}
{{- end }}
{{- end }}

{{/* basalt.container: image and security context. The list is: root, an image. */}}
{{- define "basalt.container" -}}
{{- $root := index . 0 }}{{ $image := index . 1 -}}
image: {{ include "basalt.image" (merge (dict "appVersion" $root.Chart.AppVersion) $image) | quote }}
{{- with $image.pullPolicy }}
imagePullPolicy: {{ . }}
{{- end }}
securityContext: {allowPrivilegeEscalation: false, readOnlyRootFilesystem: true, capabilities: {drop: [ALL]}}
{{- end }}

{{/* basalt.secret: a volume of a Secret. Keys are listed so that the pod waits until the Secret, which is created empty, contains them.
The list is: the volume, the Secret, the keys. */}}
{{- define "basalt.secret" -}}
- name: {{ index . 0 }}
  secret:
    secretName: {{ index . 1 }}
    defaultMode: 0440
    items:
    {{- range slice . 2 }}
    - {key: {{ . }}, path: {{ . }}}
    {{- end }}
{{- end }}

{{/* basalt.process: the pod template of the shards and of the coordinators. The list is: root, the role, its values. */}}
{{- define "basalt.process" -}}
{{- $root := index . 0 }}{{ $role := index . 1 }}{{ $values := index . 2 }}{{ $name := printf "basalt-%s" $role -}}
{{- include "basalt.metadata" (list $root $name) | nindent 0 }}
spec:
  serviceAccountName: {{ $name }}
  # Not scheduled by Basalt: these pods must run before it does.
  schedulerName: default-scheduler
  {{- with $root.Values.priorityClassName }}
  priorityClassName: {{ . }}
  {{- end }}
  {{- if eq $role "shard" }}
  terminationGracePeriodSeconds: 30 # to hand its buckets over
  {{- end }}
  {{- include "basalt.pod" (list $root $name $values) | nindent 2 }}
  affinity: {{ include "basalt.affinity" (list $name $values.affinity) | nindent 4 }}
  containers:
  - name: {{ $role }}
    {{- include "basalt.container" (list $root $root.Values.image) | nindent 4 }}
    args:
    - {{ $role }}
    - --name=$(POD_NAME)
    - --etcd={{ include "basalt.etcd.endpoints" $root }}
    - --listen=:7600
    - --gossip=:7601
    - --advertise=$(POD_IP)
    - --metrics=:7602
    - --metrics-token-file=/etc/basalt/metrics/token
    {{- if eq $role "shard" }}
    - --visibility=:7603
    {{- end }}
    - --gossip-key-file=/etc/basalt/gossip/key
    - --config=/etc/basalt/config/config.yaml
    - --tls-ca=/etc/basalt/tls/ca.crt
    - --tls-cert=/etc/basalt/tls/tls.crt
    - --tls-key=/etc/basalt/tls/tls.key
    {{- if $root.Values.etcd.endpoints }}
    - --etcd-ca=/etc/basalt/etcd/ca.crt
    - --etcd-cert=/etc/basalt/etcd/tls.crt
    - --etcd-key=/etc/basalt/etcd/tls.key
    {{- end }}
    {{- with $root.Values.otlp }}
    - {{ printf "--otlp=%s" . | quote }}
    {{- end }}
    {{- include "basalt.volcano" (list $root $role) | nindent 4 }}
    {{- if eq $role "shard" }}
    {{- if ne $values.placement "pack" }}
    - --placement={{ $values.placement }}
    {{- end }}
    {{- with $values.ignoredResources }}
    - --ignored-resources={{ join "," . }}
    {{- end }}
    {{- end }}
    {{- range $values.extraArgs }}
    - {{ quote . }}
    {{- end }}
    env:
    - name: POD_NAME
      valueFrom: {fieldRef: {fieldPath: metadata.name}}
    - name: POD_IP
      valueFrom: {fieldRef: {fieldPath: status.podIP}}
    {{- with ($values.resources.limits).memory }}
    - {name: GOMEMLIMIT, value: {{ include "basalt.gomemlimit" . }}}
    {{- end }}
    ports:
    - {name: grpc, containerPort: 7600}
    - {name: gossip, containerPort: 7601}
    - {name: gossip-udp, containerPort: 7601, protocol: UDP}
    - {name: metrics, containerPort: 7602}
    {{- if eq $role "shard" }}
    - {name: visibility, containerPort: 7603}
    {{- end }}
    livenessProbe:
      httpGet: {path: /livez, port: metrics}
      periodSeconds: 10
      failureThreshold: 3
    readinessProbe:
      httpGet: {path: /readyz, port: metrics}
      periodSeconds: 2
    resources: {{ toYaml $values.resources | nindent 6 }}
    volumeMounts:
    - {name: config, mountPath: /etc/basalt/config, readOnly: true}
    - {name: gossip-key, mountPath: /etc/basalt/gossip, readOnly: true}
    - {name: metrics-token, mountPath: /etc/basalt/metrics, readOnly: true}
    - {name: tls, mountPath: /etc/basalt/tls, readOnly: true}
    {{- if $root.Values.etcd.endpoints }}
    - {name: etcd-tls, mountPath: /etc/basalt/etcd, readOnly: true}
    {{- end }}
  volumes:
  - {name: config, configMap: {name: basalt-config}}
  {{- include "basalt.secret" (list "gossip-key" "basalt-gossip-key" "key") | nindent 2 }}
  {{- include "basalt.secret" (list "metrics-token" "basalt-metrics-token" "token") | nindent 2 }}
  {{- include "basalt.secret" (list "tls" (printf "%s-tls" $name) "ca.crt" "tls.crt" "tls.key") | nindent 2 }}
  {{- if $root.Values.etcd.endpoints }}
  {{- include "basalt.secret" (list "etcd-tls" $root.Values.etcd.secretName "ca.crt" "tls.crt" "tls.key") | nindent 2 }}
  {{- end }}
{{- end }}

{{/* basalt.volcano: the flags about Volcano and the names of schedulers. Coordinators do not take the second. */}}
{{- define "basalt.volcano" -}}
{{- $root := index . 0 }}{{ $role := index . 1 }}{{ $mode := toString $root.Values.volcano -}}
{{- if has $mode (list "observe" "write") }}
- --volcano={{ $mode }}
{{- end }}
{{- if and (ne $role "coordinator") (ne (join "," $root.Values.schedulerNames) "basalt") }}
- --scheduler-names={{ join "," $root.Values.schedulerNames }}
{{- end }}
{{- end }}
